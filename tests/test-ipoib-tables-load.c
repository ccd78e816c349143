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

/* Tests of the tables that the data path reads, under load.
 *
 *     test-ipoib-tables-load random [SEED]   operations against a model
 *     test-ipoib-tables-load threads         readers and a writer at a time
 *     test-ipoib-tables-load memory          bytes a neighbour
 *     test-ipoib-tables-load benchmark */

#include <config.h>
#undef NDEBUG
#include "test-ipoib-tables.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "ipoib-neigh-private.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "random.h"

/* Random operations against a model. */

static void
random_table(void)
{
    enum { N = 500, OPS = 100000 };
    struct ipoib_table *t = ipoib_table_create(0);
    uint32_t expected[N];
    uint64_t keys[N];
    size_t n = 0;

    for (size_t i = 0; i < N; i++) {
        keys[i] = (uint64_t) random_uint32() << 32 | (i + 1);
        expected[i] = IPOIB_SLOT_NONE;
    }
    for (size_t op = 0; op < OPS; op++) {
        /* Fills, and empties, and so on. */
        bool fill = op / 5000 % 2 ? random_range(8) : !random_range(8);
        size_t i = random_range(N);

        if (fill) {
            n += expected[i] == IPOIB_SLOT_NONE;
            expected[i] = random_range(1000);
            ipoib_table_insert(t, keys[i], expected[i]);
        } else {
            n -= expected[i] != IPOIB_SLOT_NONE;
            ovs_assert(ipoib_table_remove(t, keys[i]) == expected[i]);
            expected[i] = IPOIB_SLOT_NONE;
        }
        ovs_assert(ipoib_table_count(t) == n);
        if (op % 100 == 0) {
            check_table(t, keys, expected, N);
        }
    }
    ipoib_table_destroy(t);
}

/* A model of the neighbour table: few identities, which share GUIDs, few
 * addresses and LIDs, so that all kinds of things happen. */
enum { N_GUIDS = 4, N_QPNS = 6, N_IDS = N_GUIDS * N_QPNS, N_IPS = 12,
       N_LIDS = 5, NOBODY = -1, MODEL_MAX = 16 };
struct model {
    struct ipoib_neigh_table *t;
    long long int now;
    struct id {
        struct ipoib_addr addr;
        struct eth_addr mac;
        bool alive;
        uint16_t lid;
        long long int used;
        int mac_owner;          /* Whose the MAC is, its own or an alias. */
        long long int until;    /* If it is an alias. */
    } ids[N_IDS];
    struct in6_addr ips[N_IPS]; /* The first half are IPv4. */
    int ip_owner[N_IPS];
    int removed[N_IDS];         /* Said to have been removed. */
    size_t n_removed;
};

static void
model_removed_cb(void *m_, struct ipoib_neigh *neigh)
{
    struct model *m = m_;

    for (int i = 0; i < N_IDS; i++) {
        if (ipoib_addr_equals(&m->ids[i].addr, &neigh->addr)) {
            m->removed[m->n_removed++] = i;
            return;
        }
    }
    OVS_NOT_REACHED();
}

static const struct ipoib_neigh_ops model_ops = { model_removed_cb };

static void
model_init(struct model *m)
{
    memset(m, 0, sizeof *m);
    m->t = ipoib_neigh_table_create(PKEY, MODEL_MAX, &model_ops, m);
    m->now = 1000 * 1000;
    for (int i = 0; i < N_IDS; i++) {
        m->ids[i].addr = make_addr(GUID + i / N_QPNS, 0x100 + i % N_QPNS);
        m->ids[i].mac = ipoib_standin_mac(PKEY, &m->ids[i].addr, 0);
        m->ids[i].mac_owner = NOBODY;
    }
    for (int i = 0; i < N_IPS; i++) {
        m->ips[i] = i < N_IPS / 2 ? ip4(i) : ip6(i);
        m->ip_owner[i] = NOBODY;
    }
}

/* Gives all that 'from' has to 'to', who may be NOBODY. */
static void
model_kill(struct model *m, int from, int to)
{
    m->ids[from].alive = false;
    for (int i = 0; i < N_IPS; i++) {
        if (m->ip_owner[i] == from) {
            m->ip_owner[i] = to;
        }
    }
    for (int i = 0; i < N_IDS; i++) {
        if (m->ids[i].mac_owner == from) {
            m->ids[i].mac_owner = to;
            if (i == from) {
                m->ids[i].until = m->now + IPOIB_NEIGH_ALIAS_MS;
            }
        }
    }
}

static int
model_count(const struct model *m)
{
    int n = 0;

    for (int i = 0; i < N_IDS; i++) {
        n += m->ids[i].alive;
    }
    return n;
}

/* Is 'ip' the only address of its family that its owner has? */
static bool
model_is_last_ip(const struct model *m, int ip)
{
    for (int i = 0; i < N_IPS; i++) {
        if (i != ip && m->ip_owner[i] == m->ip_owner[ip]
            && (i < N_IPS / 2) == (ip < N_IPS / 2)) {
            return false;
        }
    }
    return true;
}

static void
model_learn(struct model *m, int i, int ip, uint16_t lid)
{
    struct id *id = &m->ids[i];
    int owner = ip == NOBODY ? NOBODY : m->ip_owner[ip];
    bool reborn = (owner != NOBODY && owner != i
                   && owner / N_QPNS == i / N_QPNS
                   && model_is_last_ip(m, ip));
    unsigned int changes = 0;

    if (!id->alive) {
        changes |= IPOIB_NEIGH_NEW;
        id->alive = true;
        id->lid = lid;
        id->mac_owner = i;
        id->used = 0;
    } else if (lid && lid != id->lid) {
        changes |= id->lid ? IPOIB_NEIGH_NEW_LID : 0;
        id->lid = lid;
    }
    id->used = MAX(id->used, m->now / 1000 * 1000);
    if (ip != NOBODY) {
        if (reborn) {
            changes |= IPOIB_NEIGH_REBORN;
            model_kill(m, owner, i);
        } else if (owner == NOBODY) {
            changes |= IPOIB_NEIGH_NEW_IP;
        } else if (owner != i) {
            changes |= IPOIB_NEIGH_MOVED_IP;
        }
        m->ip_owner[ip] = i;
    }

    struct ipoib_neigh *neigh = learn(m->t, id->addr,
                                      ip == NOBODY ? NULL : &m->ips[ip],
                                      lid, m->now, changes);
    ovs_assert(eth_addr_equals(neigh->mac, id->mac) && neigh->lid == id->lid);

    /* Who had to go was up to the table. */
    bool evict = model_count(m) > MODEL_MAX;
    ovs_assert(m->n_removed == reborn + evict);
    ovs_assert(!reborn || m->removed[0] == owner);
    if (evict) {
        int victim = m->removed[m->n_removed - 1];

        ovs_assert(victim != i && m->ids[victim].alive);
        model_kill(m, victim, NOBODY);
    }
}

static void
model_age(struct model *m, long long int idle)
{
    size_t n = 0;

    for (int i = 0; i < N_IDS; i++) {
        struct id *id = &m->ids[i];

        if (id->mac_owner != NOBODY && id->mac_owner != i
            && id->until <= m->now) {
            id->mac_owner = NOBODY;
        }
        if (id->alive && m->now - id->used >= idle) {
            model_kill(m, i, NOBODY);
            n++;
        }
    }
    ovs_assert(ipoib_neigh_age(m->t, m->now, idle, 1000) == n);
    ovs_assert(m->n_removed == n);
}

static void
model_mark_used(struct model *m, int i)
{
    struct ipoib_neigh *neigh = ipoib_neigh_find(m->t, &m->ids[i].addr);

    ipoib_neigh_mark_used(ipoib_neigh_fast(m->t, neigh->slot), m->now / 1000);
    m->ids[i].used = MAX(m->ids[i].used, m->now / 1000 * 1000);
    ovs_assert(ipoib_neigh_used(m->t, neigh) == m->ids[i].used);
}

/* Compares all that can be looked up. */
static void
model_check(const struct model *m)
{
    struct ipoib_neigh *neighs[N_IDS + 1], **neigh = neighs + 1;

    neigh[NOBODY] = NULL;
    ovs_assert(ipoib_neigh_table_count(m->t) == model_count(m));
    for (int i = 0; i < N_IDS; i++) {
        neigh[i] = by_addr(m->t, &m->ids[i].addr);
        ovs_assert(!neigh[i] == !m->ids[i].alive);
    }
    for (int i = 0; i < N_IDS; i++) {
        ovs_assert(by_mac(m->t, m->ids[i].mac)
                   == neigh[m->ids[i].mac_owner]);
    }
    for (int i = 0; i < N_IPS; i++) {
        ovs_assert(by_ip(m->t, m->ips[i]) == neigh[m->ip_owner[i]]);
    }
    for (int lid = 1; lid <= N_LIDS; lid++) {
        int n = 0, last = NOBODY;

        for (int qpn = 0; qpn < N_QPNS; qpn++) {
            int n_qpn = 0, last_qpn = NOBODY;

            for (int i = qpn; i < N_IDS; i += N_QPNS) {
                if (m->ids[i].alive && m->ids[i].lid == lid) {
                    n++;
                    n_qpn++;
                    last = last_qpn = i;
                }
            }
            ovs_assert(by_lid(m->t, lid, 0x100 + qpn)
                       == (n_qpn == 1 ? neigh[last_qpn] : NULL));
        }
        ovs_assert(by_lid_alone(m->t, lid) == (n == 1 ? neigh[last] : NULL));
    }
}

static void
random_neighs(void)
{
    struct model m;

    model_init(&m);
    for (int op = 0; op < 100000; op++) {
        int i = random_range(N_IDS);
        int what = random_range(100);

        m.n_removed = 0;
        m.now += random_range(2000);
        if (what < 70) {
            model_learn(&m, i, random_range(4) ? random_range(N_IPS) : NOBODY,
                        random_range(N_LIDS + 1));
        } else if (what < 80 && m.ids[i].alive) {
            model_mark_used(&m, i);
        } else if (what < 90 && m.ids[i].alive) {
            ipoib_neigh_remove(m.t, ipoib_neigh_find(m.t, &m.ids[i].addr));
            model_kill(&m, i, NOBODY);
        } else if (what < 99) {
            model_age(&m, 60000);
        } else {
            m.now += IPOIB_NEIGH_ALIAS_MS / 2;
            model_age(&m, INT64_MAX);
        }
        model_check(&m);
        if (op % 64 == 0) {
            ovsrcu_quiesce();   /* So that slots are used again. */
        }
    }
    m.n_removed = 0;
    ipoib_neigh_table_destroy(m.t);
}

/* Readers and a writer. */

enum { N_READERS = 2, N_HOT = 40, N_BIG = 50000, N_NEIGHS = 3000 };

struct shared {
    atomic_bool stop;
    struct ipoib_table *hot;    /* Small, each key comes and goes. */
    struct ipoib_table *big;    /* Grows; every fourth key is always there. */
    struct ipoib_neigh_table *neighs;
    struct ipoib_addr addrs[N_NEIGHS];
    uint64_t macs[N_NEIGHS];
};

/* A slot of the hot table says which key it belongs to, and changes. */
static uint32_t
hot_slot(uint64_t key, uint32_t count)
{
    return key << 20 | (count & 0xfffff);
}

static uint64_t
big_key(uint32_t i)
{
    return (uint64_t) i << 20 | 1;
}

static size_t
read_hot(const struct shared *s, uint32_t start)
{
    uint64_t keys[33];
    uint32_t slots[33];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        keys[i] = 1 + (start + i) % N_HOT;
    }
    ipoib_table_lookup_batch(s->hot, keys, ARRAY_SIZE(keys), slots);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (slots[i] != IPOIB_SLOT_NONE) {
            ovs_assert(slots[i] >> 20 == keys[i]);
            n++;
        }
    }
    return n;
}

static size_t
read_big(const struct shared *s, uint32_t start)
{
    size_t n = 0;

    for (uint32_t i = start; i < start + 32; i++) {
        uint32_t slot = ipoib_table_lookup(s->big, big_key(i % N_BIG));

        ovs_assert(slot == i % N_BIG
                   || (slot == IPOIB_SLOT_NONE && i % N_BIG % 4));
        n += slot != IPOIB_SLOT_NONE;
    }
    return n;
}

/* What is found stays until we quiesce, also when the neighbour is gone and
 * others come. */
static size_t
read_neighs(const struct shared *s, uint32_t start)
{
    uint32_t slots[32], idxs[32];
    uint64_t macs[32];
    size_t n = 0;

    for (size_t i = 0; i < 32; i++) {
        idxs[i] = (start + i * 7) % N_NEIGHS;
        macs[i] = s->macs[idxs[i]];
    }
    ipoib_neigh_by_mac(s->neighs, macs, 32, slots);
    for (size_t i = 0; i < 32; i++) {
        const struct ipoib_addr *addr = &s->addrs[idxs[i]];
        uint32_t qpn = ipoib_addr_qpn(addr);

        if (slots[i] != IPOIB_SLOT_NONE) {
            struct ipoib_neigh_fast *fast = ipoib_neigh_fast(s->neighs,
                                                             slots[i]);
            struct ibv_ah *ah;

            ovs_assert(fast->mac == ipoib_frame_mac(macs[i]));
            ovs_assert(fast->qpn == qpn);
            ovs_assert(ib_gid_equals(&fast->gid, &addr->gid));
            atomic_read_explicit(&fast->ah, &ah, memory_order_acquire);
            ovs_assert(!ah || (uintptr_t) ah == qpn);
            ipoib_neigh_mark_used(fast, start);
            n++;
        }

        uint32_t slot = ipoib_neigh_by_gid(s->neighs, &addr->gid, qpn);
        ovs_assert(slot == IPOIB_SLOT_NONE
                   || ipoib_neigh_fast(s->neighs, slot)->qpn == qpn);
    }
    return n;
}

static void *
reader_thread(void *s_)
{
    const struct shared *s = s_;
    size_t found[3] = { 0, 0, 0 };
    bool stop = false;

    while (!stop) {
        for (int i = 0; i < 20; i++) {
            found[0] += read_hot(s, random_uint32());
            found[1] += read_big(s, random_uint32() / 2);
            found[2] += read_neighs(s, random_uint32());
        }
        ovsrcu_quiesce();
        atomic_read(&CONST_CAST(struct shared *, s)->stop, &stop);
    }
    ovs_assert(found[0] && found[1] && found[2]);
    return NULL;
}

/* The writer's part: 'round' of many. */
static void
write_round(struct shared *s, uint32_t round)
{
    unsigned int changes;

    for (int i = 0; i < 200; i++) {
        uint64_t key = 1 + random_range(N_HOT);

        if (random_range(2)) {
            ipoib_table_insert(s->hot, key, hot_slot(key, round * 200 + i));
        } else {
            ipoib_table_remove(s->hot, key);
        }
    }

    for (int i = 0; i < 100; i++) {
        uint32_t idx = random_range(N_BIG);

        if (idx % 4 && random_range(3)) {
            ipoib_table_insert(s->big, big_key(idx), idx);
        } else if (idx % 4) {
            ipoib_table_remove(s->big, big_key(idx));
        } else {
            ipoib_table_insert(s->big, big_key(idx), idx);
        }
    }

    for (int i = 0; i < 20; i++) {
        struct ipoib_addr *addr = &s->addrs[random_range(N_NEIGHS)];
        struct ipoib_neigh *neigh = ipoib_neigh_find(s->neighs, addr);

        if (neigh) {
            ipoib_neigh_remove(s->neighs, neigh);
        } else {
            neigh = ipoib_neigh_learn(s->neighs, addr, NULL,
                                      1 + random_range(9), 1000, &changes);
            ipoib_neigh_set_ah(s->neighs, neigh,
                               (void *) (uintptr_t) ipoib_addr_qpn(addr),
                               2044);
        }
    }
}

static void
run_threads(void)
{
    static struct shared s;
    pthread_t threads[N_READERS];

    atomic_init(&s.stop, false);
    s.hot = ipoib_table_create(N_HOT);
    s.big = ipoib_table_create(0);
    s.neighs = ipoib_neigh_table_create(PKEY, N_NEIGHS / 2, NULL, NULL);
    for (uint32_t i = 0; i < N_NEIGHS; i++) {
        s.addrs[i] = make_addr(GUID + i, 0x1000 + i);
        s.macs[i] = eth_addr_to_uint64(ipoib_standin_mac(PKEY, &s.addrs[i],
                                                         0));
    }
    for (uint32_t i = 0; i < N_BIG; i += 4) {
        ipoib_table_insert(s.big, big_key(i), i);
    }
    for (int i = 0; i < N_READERS; i++) {
        threads[i] = ovs_thread_create("reader", reader_thread, &s);
    }
    for (uint32_t round = 0; round < 4000; round++) {
        write_round(&s, round);
        if (round % 8 == 0) {
            ovsrcu_quiesce();
        }
    }
    atomic_store(&s.stop, true);
    for (int i = 0; i < N_READERS; i++) {
        ovsrcu_quiesce_start();
        xpthread_join(threads[i], NULL);
        ovsrcu_quiesce_end();
    }
    ipoib_table_destroy(s.hot);
    ipoib_table_destroy(s.big);
    ipoib_neigh_table_destroy(s.neighs);
    ovsrcu_barrier();
}

/* Memory. */

/* Learns the i-th of many neighbours, of whom each has a QPN and an address of
 * its own. */
static struct ipoib_neigh *
learn_nth(struct ipoib_neigh_table *t, uint32_t i)
{
    struct ipoib_addr addr = make_addr(GUID + i, 0x1000 + i);
    struct in6_addr ip = ip4(i);
    unsigned int changes;

    return ipoib_neigh_learn(t, &addr, &ip, 1 + i % 40000, 1000, &changes);
}

/* Besides what each neighbour takes there is what does not depend on their
 * number: a huge page, of which a part is not used yet; LIDs and what was
 * heard from each; forgotten MACs. */
static void
run_memory(void)
{
    enum { N = 400000, HUGE = 2 << 20, LIDS = 6 << 20 };
    struct ipoib_neigh_table *t = ipoib_neigh_table_create(PKEY, N, NULL,
                                                           NULL);

    for (uint32_t i = 0; i < N; i++) {
        learn_nth(t, i);
        if (i >= 20000 && i % 1000 == 0) {
            size_t fast, all;

            ipoib_neigh_table_memory(t, &fast, &all);
            ovs_assert(fast >= i * (CACHE_LINE_SIZE + 2 * 8));
            ovs_assert(fast <= i * 96 + HUGE);
            ovs_assert(all >= fast);
            ovs_assert(all <= i * 256 + HUGE + LIDS);
            ovsrcu_quiesce();
        }
    }
    ipoib_neigh_table_destroy(t);
}

/* Benchmark. */

static double
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static size_t
rss(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long int total, resident = 0;

    if (f) {
        if (fscanf(f, "%lu %lu", &total, &resident) != 2) {
            resident = 0;
        }
        fclose(f);
    }
    return resident * getpagesize();
}

/* Looks up the 'n' MACs at 'keys' as the data path does, and reads from each
 * neighbour.  Returns the time for each. */
static double
time_lookups(const struct ipoib_neigh_table *t, const uint64_t keys[],
             size_t n)
{
    struct ipoib_index_bucket *homes[32];
    struct ipoib_neigh_fast *neighs[32];
    uint64_t hashes[32];
    uint32_t sum = 0;
    double start = now_ns();

    for (size_t i = 0; i < n; i += 32, keys += 32) {
        struct ipoib_neigh_view view = ipoib_neigh_macs(t);

        for (size_t j = 0; j < 32; j++) {
            homes[j] = ipoib_index_home(&view.index, keys[j], &hashes[j]);
        }
        ipoib_neigh_find_batch(&view, homes, hashes, 32, neighs);
        for (size_t j = 0; j < 32; j++) {
            if (!ipoib_neigh_has_mac(neighs[j], keys[j])) {
                neighs[j] = ipoib_neigh_search_mac(t, keys[j]);
            }
            sum += neighs[j]->qpn;
        }
    }
    ovs_assert(sum);
    return (now_ns() - start) / n;
}

/* Returns how many keys a second can be inserted into an index. */
static double
time_inserts(const uint64_t keys[], size_t n, size_t size)
{
    struct ipoib_index *index = ipoib_index_create(size);
    double start = now_ns();

    for (size_t i = 0; i < n; i++) {
        ipoib_index_insert(index, keys[i], i);
    }
    start = now_ns() - start;
    ipoib_index_destroy(index);
    return n / start * 1e9;
}

static void
benchmark(size_t n)
{
    enum { LOOKUPS = 1 << 20 };
    struct ipoib_neigh_table *t = ipoib_neigh_table_create(PKEY, n, NULL,
                                                           NULL);
    uint64_t *keys = xcalloc(n, sizeof *keys);
    uint64_t *queries = xcalloc(LOOKUPS, sizeof *queries);
    double age[2], lookup = INFINITY, start = now_ns();
    size_t fast, all, mem = rss();

    for (size_t i = 0; i < n; i++) {
        struct ipoib_neigh *neigh = learn_nth(t, i);

        keys[i] = ipoib_frame_mac(eth_addr_to_uint64(neigh->mac));
        if (i % 1024 == 0) {
            ovsrcu_quiesce();
        }
    }
    double learn = now_ns() - start;
    ipoib_neigh_table_memory(t, &fast, &all);
    ovsrcu_barrier();
    mem = rss() - mem;

    for (size_t i = 0; i < LOOKUPS; i++) {
        queries[i] = keys[random_uint32() % n];
    }
    for (int round = 0; round < 5; round++) {
        lookup = MIN(lookup, time_lookups(t, queries, LOOKUPS));
    }

    /* The first pass looks at each; the second one need not. */
    for (int pass = 0; pass < 2; pass++) {
        age[pass] = now_ns();
        ovs_assert(!ipoib_neigh_age(t, 70000, 69500, n));
        age[pass] = now_ns() - age[pass];
    }

    printf("%7"PRIuSIZE"%9.1f%9.2f%9.2f%8.2f%8.3f%8.3f%8.1f%8.1f%8.1f\n", n,
           lookup, time_inserts(keys, n, 0) / 1e6,
           time_inserts(keys, n, n) / 1e6, n / learn * 1e3, age[0] / 1e6,
           age[1] / 1e6, (double) fast / n, (double) all / n,
           (double) mem / n);
    ipoib_neigh_table_destroy(t);
    free(keys);
    free(queries);
    ovsrcu_quiesce();
}

static void
run_benchmark(void)
{
    printf("          lookup   insert   insert   learn    age, ms   "
           "   bytes   bytes     RSS\n");
    printf("      n       ns grow M/s      M/s     M/s  first  second"
           "    fast     all\n");
    benchmark(1000);
    benchmark(100 * 1000);
    benchmark(1000 * 1000);
}

static void
test_ipoib_tables_load_main(int argc, char *argv[])
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "random")) {
        random_set_seed(argc > 2 ? atoi(argv[2]) : 1);
        random_table();
        random_neighs();
    } else if (!strcmp(what, "threads")) {
        run_threads();
    } else if (!strcmp(what, "memory")) {
        run_memory();
    } else if (!strcmp(what, "benchmark")) {
        run_benchmark();
    } else {
        ovs_fatal(0, "\"%s\": is none of random, threads, memory, benchmark",
                  what);
    }
}

OVSTEST_REGISTER("test-ipoib-tables-load", test_ipoib_tables_load_main);
