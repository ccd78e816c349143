/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#include "ipoib-pool-eal.h"

#ifndef DPDK_NETDEV

#include "openvswitch/compiler.h"

void
ipoib_pool_eal_open(const struct ipoib_verbs *verbs OVS_UNUSED,
                    struct ibv_pd *pd OVS_UNUSED)
{
    /* There is none. */
}

void
ipoib_pool_eal_close(const struct ibv_pd *pd OVS_UNUSED)
{
    /* There is none. */
}

#else

#include <errno.h>
#include <rte_eal_memconfig.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <stdlib.h>

#include "dpdk.h"
#include "ipoib-pool.h"
#include "openvswitch/vlog.h"
#include "ovs-atomic.h"
#include "ovs-thread.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_pool_eal);

/* Memory regions of a domain: what does not fit is copied.  EAL adds and takes
 * away memory by pages, of 2 MB at least. */
#define MAX_REGIONS 2048

/* HCAs. */
#define MAX_DOMAINS 16

/* The data path reads these, under 'version'. */
struct region {
    atomic_uintptr_t start, end;
    atomic_uint32_t lkey;
    struct ibv_mr *mr;
};

/* A protection domain.  Domains are never freed, since readers look at all of
 * them; threads of DPDK may be the ones that change regions, and they know
 * nothing of RCU.  So readers find out by 'version', odd while there is a
 * change, whether they can trust what they have read. */
struct domain {
    ATOMIC(struct ibv_pd *) pd; /* NULL: not in use. */
    atomic_uint32_t version;
    atomic_size_t n;
    struct region regions[MAX_REGIONS]; /* By 'start'. */

    const struct ipoib_verbs *verbs;
    bool failed;                /* Some memory could not be registered. */
};

static ATOMIC(struct domain *) domains[MAX_DOMAINS];

/* Guards changes.  Whoever has EAL's memory lock may take it, not the other
 * way around. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;

/* EAL's memory stays as it is: --legacy-mem, --no-huge. */
static bool is_static;

/* Readers. */

static struct ipoib_region
domain_find(struct domain *domain, uintptr_t start, uintptr_t end)
{
    const struct ipoib_region none = { .lkey = 0 };
    struct region *region = domain->regions;
    struct ipoib_region found;
    uint32_t version, again;
    size_t n;

    atomic_read_explicit(&domain->version, &version, memory_order_acquire);
    atomic_read_relaxed(&domain->n, &n);
    if (OVS_UNLIKELY(version & 1 || !n)) {
        return none;
    }

    /* The last one that begins at 'start' or before. */
    while (n > 1) {
        size_t half = n / 2;
        uintptr_t region_start;

        atomic_read_relaxed(&region[half].start, &region_start);
        region += region_start <= start ? half : 0;
        n -= half;
    }
    atomic_read_relaxed(&region->start, &found.start);
    atomic_read_relaxed(&region->end, &found.end);
    atomic_read_relaxed(&region->lkey, &found.lkey);

    atomic_thread_fence(memory_order_acquire);
    atomic_read_relaxed(&domain->version, &again);
    return (again == version && ipoib_region_has(&found, start, end - start)
            ? found : none);
}

struct ipoib_region
ipoib_pool_eal_region(const struct ibv_pd *pd, const void *data, size_t len)
{
    for (size_t i = 0; i < MAX_DOMAINS; i++) {
        struct domain *domain;
        struct ibv_pd *domain_pd;

        atomic_read_explicit(&domains[i], &domain, memory_order_acquire);
        if (!domain) {
            break;
        }
        atomic_read_relaxed(&domain->pd, &domain_pd);
        if (domain_pd == pd) {
            return domain_find(domain, (uintptr_t) data,
                               (uintptr_t) data + len);
        }
    }
    return (struct ipoib_region) { .lkey = 0 };
}

/* Changes. */

static void
change_begin(struct domain *domain)
    OVS_REQUIRES(mutex)
{
    uint32_t version;

    atomic_read_relaxed(&domain->version, &version);
    atomic_store_relaxed(&domain->version, version + 1);
    atomic_thread_fence(memory_order_release);
}

static void
change_end(struct domain *domain)
    OVS_REQUIRES(mutex)
{
    uint32_t version;

    atomic_read_relaxed(&domain->version, &version);
    atomic_store_explicit(&domain->version, version + 1,
                          memory_order_release);
}

static void
region_set(struct region *region, uintptr_t start, uintptr_t end,
           struct ibv_mr *mr)
{
    atomic_store_relaxed(&region->start, start);
    atomic_store_relaxed(&region->end, end);
    atomic_store_relaxed(&region->lkey, mr->lkey);
    region->mr = mr;
}

static void
region_copy(struct region *dst, struct region *src)
{
    uintptr_t start, end;

    atomic_read_relaxed(&src->start, &start);
    atomic_read_relaxed(&src->end, &end);
    region_set(dst, start, end, src->mr);
}

/* Registers the 'len' bytes at 'addr'. */
static void
domain_add(struct domain *domain, void *addr, size_t len)
    OVS_REQUIRES(mutex)
{
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    size_t n, pos;

    atomic_read_relaxed(&domain->pd, &pd);
    atomic_read_relaxed(&domain->n, &n);
    if (domain->failed || n >= MAX_REGIONS) {
        return;
    }
    mr = ipoib_pool_reg_mr(domain->verbs, pd, addr, len, 0);
    if (!mr) {
        VLOG_INFO("packets in DPDK's memory are copied to be sent");
        domain->failed = true;
        return;
    }

    change_begin(domain);
    for (pos = n; pos > 0; pos--) {
        uintptr_t start;

        atomic_read_relaxed(&domain->regions[pos - 1].start, &start);
        if (start < (uintptr_t) addr) {
            break;
        }
        region_copy(&domain->regions[pos], &domain->regions[pos - 1]);
    }
    region_set(&domain->regions[pos], (uintptr_t) addr,
               (uintptr_t) addr + len, mr);
    atomic_store_relaxed(&domain->n, n + 1);
    change_end(domain);
}

/* Ends the regions that begin within the 'len' bytes at 'addr'. */
static void
domain_remove(struct domain *domain, uintptr_t addr, size_t len)
    OVS_REQUIRES(mutex)
{
    size_t n, kept = 0;

    atomic_read_relaxed(&domain->n, &n);
    change_begin(domain);
    for (size_t i = 0; i < n; i++) {
        struct region *region = &domain->regions[i];
        uintptr_t start;

        atomic_read_relaxed(&region->start, &start);
        if (start - addr < len) {
            int error = domain->verbs->dereg_mr(region->mr);

            if (error) {
                VLOG_ERR("deregistering DPDK's memory failed (%s)",
                         ovs_strerror(error));
            }
        } else {
            region_copy(&domain->regions[kept++], region);
        }
    }
    atomic_store_relaxed(&domain->n, kept);
    change_end(domain);
}

/* EAL's memory. */

static int
add_page(const struct rte_memseg_list *msl, const struct rte_memseg *ms,
         void *domain)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    if (!msl->external) {
        domain_add(domain, ms->addr, ms->len);
    }
    return 0;
}

static int
add_pages(const struct rte_memseg_list *msl, const struct rte_memseg *ms,
          size_t len, void *domain)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    if (!msl->external) {
        domain_add(domain, ms->addr, len);
    }
    return 0;
}

/* Memory comes or goes.  The caller has EAL's memory lock. */
static void
memory_changed(enum rte_mem_event event, const void *addr, size_t len,
               void *aux OVS_UNUSED)
{
    const struct rte_memseg_list *msl = rte_mem_virt2memseg_list(addr);

    ovs_mutex_lock(&mutex);
    for (size_t i = 0; i < MAX_DOMAINS; i++) {
        struct domain *domain;
        struct ibv_pd *pd = NULL;

        atomic_read_relaxed(&domains[i], &domain);
        if (domain) {
            atomic_read_relaxed(&domain->pd, &pd);
        }
        if (!pd || !msl || msl->external) {
            continue;
        }
        if (event == RTE_MEM_EVENT_FREE) {
            domain_remove(domain, (uintptr_t) addr, len);
            continue;
        }
        for (size_t ofs = 0; ofs < len; ofs += msl->page_sz) {
            domain_add(domain, (char *) CONST_CAST(void *, addr) + ofs,
                       msl->page_sz);
        }
    }
    ovs_mutex_unlock(&mutex);
}

/* A domain for 'pd', which has none, or NULL. */
static struct domain *
domain_new(struct ibv_pd *pd)
    OVS_REQUIRES(mutex)
{
    struct domain *unused = NULL;

    for (size_t i = 0; i < MAX_DOMAINS; i++) {
        struct domain *domain;
        struct ibv_pd *domain_pd;

        atomic_read_relaxed(&domains[i], &domain);
        if (!domain) {
            if (!unused) {
                unused = xzalloc_cacheline(sizeof *unused);
                atomic_store_explicit(&domains[i], unused,
                                      memory_order_release);
            }
            break;
        }
        atomic_read_relaxed(&domain->pd, &domain_pd);
        if (domain_pd == pd) {
            return NULL;
        } else if (!domain_pd) {
            unused = domain;
        }
    }
    return unused;
}

void
ipoib_pool_eal_open(const struct ipoib_verbs *verbs, struct ibv_pd *pd)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct domain *domain;

    if (!dpdk_available()) {
        return;
    }
    if (ovsthread_once_start(&once)) {
        is_static = rte_mem_event_callback_register("ovs-ipoib",
                                                    memory_changed, NULL);
        ovsthread_once_done(&once);
    }

    rte_mcfg_mem_read_lock();
    ovs_mutex_lock(&mutex);
    domain = domain_new(pd);
    if (domain) {
        domain->verbs = verbs;
        domain->failed = false;
        atomic_store_relaxed(&domain->pd, pd);
        if (is_static) {
            rte_memseg_contig_walk_thread_unsafe(add_pages, domain);
        } else {
            rte_memseg_walk_thread_unsafe(add_page, domain);
        }
    }
    ovs_mutex_unlock(&mutex);
    rte_mcfg_mem_read_unlock();
}

void
ipoib_pool_eal_close(const struct ibv_pd *pd)
{
    ovs_mutex_lock(&mutex);
    for (size_t i = 0; i < MAX_DOMAINS; i++) {
        struct domain *domain;
        struct ibv_pd *domain_pd = NULL;

        atomic_read_relaxed(&domains[i], &domain);
        if (domain) {
            atomic_read_relaxed(&domain->pd, &domain_pd);
        }
        if (domain_pd && domain_pd == pd) {
            domain_remove(domain, 0, UINTPTR_MAX);
            atomic_store_relaxed(&domain->pd, NULL);
        }
    }
    ovs_mutex_unlock(&mutex);
}

#endif /* DPDK_NETDEV */
