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
#include "ipoib-hostqp.h"

#include <errno.h>
#include "hash.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_hostqp);

/* QPs that are kept ready for new hosts, in each receive queue, and how many
 * one run makes at most: on hardware each takes about a millisecond. */
#define N_READY 8
#define N_MAKE 2

/* A QP in ERR is taken to be drained after this long, in ms, if the device
 * does not say so, and a PMD to be gone if it does not poll for as long. */
#define DRAIN_TIMEOUT 2000

/* QPNs that rest at most; beyond that the eldest go first. */
#define MAX_RESTING 16384

/* A QP in use is sent a packet this long, in ms, after the last one came, so
 * many QPs a second at most; and one a second if it does not come, until so
 * many are missed. */
#define PROBE_INTERVAL 10000
#define PROBE_MAX 64
#define PROBE_MISSED 3

enum hostqp_state {
    HOSTQP_READY,
    HOSTQP_IN_USE,
    HOSTQP_DRAINING,
    HOSTQP_RESTING,
};

struct hostqp {
    struct hmap_node node;      /* In ipoib_hostqps 'by_qpn'. */
    struct ovs_list list_node;  /* READY: in ready list; DRAINING, RESTING: in
                                 * the list of that name. */
    struct ibv_qp *qp;
    unsigned int rxq;
    enum hostqp_state state;
    struct hostqp *next;        /* IN_USE: another of the same host. */
    long long int since;        /* When it got into 'state'. */
    bool last_wqe;              /* The device takes no more receives for it. */
    bool counted;               /* 'drained' is valid. */
    uint64_t drained;           /* Receive queue's count at that time. */
    struct grace *grace;        /* DRAINING: of its withdrawal. */
    struct ovs_list probe_node; /* In list 'probing', if 'probing'. */
    bool probing;               /* A probe is on its way. */
    unsigned int n_missed;      /* Probes, in a row. */
    long long int next_probe;
};

/* An RCU grace period that somebody waits for without blocking.  Both the
 * waiter and the callback hold a reference. */
struct grace {
    struct ovs_refcount refs;
    atomic_bool over;
};

struct ipoib_hostqps {
    struct ipoib_shared *shared;
    struct ipoib_ctlq *ctlq;
    struct ipoib_ud_params ud;
    struct ipoib_rxq **rxqs;
    unsigned int n_rxq;
    size_t max;

    struct hmap by_qpn;         /* All of struct hostqp. */
    struct ovs_list *ready;     /* One list for each receive queue. */
    size_t *n_ready;
    struct ovs_list probing;    /* Of those in use. */
    struct ovs_list draining;   /* Eldest first. */
    struct ovs_list resting;    /* Eldest first. */
    size_t n_in_use, n_draining, n_resting, n_sharing;
    uint64_t n_made, n_failed;
    long long int next_make;    /* After a failure: not before this. */
};

struct ipoib_hostqps *
ipoib_hostqps_create(struct ipoib_shared *shared, struct ipoib_ctlq *ctlq)
{
    struct ipoib_hostqps *hqs = xzalloc(sizeof *hqs);

    hqs->shared = shared;
    hqs->ctlq = ctlq;
    hmap_init(&hqs->by_qpn);
    ovs_list_init(&hqs->probing);
    ovs_list_init(&hqs->draining);
    ovs_list_init(&hqs->resting);
    return hqs;
}

void
ipoib_hostqps_destroy(struct ipoib_hostqps *hqs)
{
    if (hqs) {
        ipoib_hostqps_clear(hqs);
        hmap_destroy(&hqs->by_qpn);
        free(hqs->ready);
        free(hqs->n_ready);
        free(hqs);
    }
}

void
ipoib_hostqps_configure(struct ipoib_hostqps *hqs, struct ipoib_rxq **rxqs,
                        unsigned int n_rxq, const struct ipoib_ud_params *ud,
                        size_t max)
{
    hqs->ud = *ud;
    hqs->max = max;
    if (hqs->rxqs == rxqs && hqs->n_rxq == n_rxq) {
        return;
    }
    ipoib_hostqps_clear(hqs);
    hqs->rxqs = rxqs;
    hqs->n_rxq = n_rxq;
    free(hqs->ready);
    free(hqs->n_ready);
    hqs->ready = xmalloc(n_rxq * sizeof *hqs->ready);
    hqs->n_ready = xcalloc(n_rxq, sizeof *hqs->n_ready);
    for (unsigned int i = 0; i < n_rxq; i++) {
        ovs_list_init(&hqs->ready[i]);
    }
}

static struct hostqp *
hostqp_find(const struct ipoib_hostqps *hqs, uint32_t qpn)
{
    struct hostqp *hq;

    HMAP_FOR_EACH_WITH_HASH (hq, node, hash_int(qpn, 0), &hqs->by_qpn) {
        if (hq->qp->qp_num == qpn) {
            return hq;
        }
    }
    return NULL;
}

struct ibv_qp *
ipoib_hostqps_find(const struct ipoib_hostqps *hqs, uint32_t qpn)
{
    struct hostqp *hq = hostqp_find(hqs, qpn);

    if (hq) {
        return hq->state == HOSTQP_IN_USE ? hq->qp : NULL;
    }
    for (unsigned int i = 0; i < hqs->n_rxq; i++) {
        if (hqs->rxqs[i]->base_qp->qp_num == qpn) {
            return hqs->rxqs[i]->base_qp;
        }
    }
    return NULL;
}


/* Making. */

/* Makes a QP in receive queue 'rxq', in state READY but in no list. */
static struct hostqp *
hostqp_make(struct ipoib_hostqps *hqs, unsigned int rxq)
{
    struct ibv_qp *qp = ipoib_rxq_create_host_qp(hqs->rxqs[rxq],
                                                 ipoib_ctlq_cq(hqs->ctlq),
                                                 &hqs->ud);
    struct hostqp *hq;

    if (!qp) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 1);

        hqs->n_failed++;
        hqs->next_make = time_msec() + 1000;
        VLOG_WARN_RL(&rl, "cannot make a queue pair for a host (%s); hosts "
                     "share the base queue pair meanwhile",
                     ovs_strerror(errno));
        return NULL;
    }
    hq = xzalloc(sizeof *hq);
    hq->qp = qp;
    hq->rxq = rxq;
    hq->state = HOSTQP_READY;
    hmap_insert(&hqs->by_qpn, &hq->node, hash_int(qp->qp_num, 0));
    ipoib_table_insert(hqs->shared->own_qpns, qp->qp_num, rxq);
    hqs->n_made++;
    return hq;
}

/* How many QPs may still be made, if there may be 'max'. */
static size_t
room_for(const struct ipoib_hostqps *hqs, size_t max)
{
    size_t n = hmap_count(&hqs->by_qpn) - hqs->n_resting;

    return n < max ? max - n : 0;
}

/* Takes a ready QP of receive queue 'rxq'.  NULL if there is none. */
static struct hostqp *
hostqp_take_ready(struct ipoib_hostqps *hqs, unsigned int rxq)
{
    if (ovs_list_is_empty(&hqs->ready[rxq])) {
        return NULL;
    }
    hqs->n_ready[rxq]--;
    return CONTAINER_OF(ovs_list_pop_front(&hqs->ready[rxq]), struct hostqp,
                        list_node);
}

/* Takes a QP of receive queue 'rxq', or else of another one. */
static struct hostqp *
hostqp_take(struct ipoib_hostqps *hqs, unsigned int rxq, size_t max)
{
    struct hostqp *hq = hostqp_take_ready(hqs, rxq);

    if (!hq && room_for(hqs, max) && time_msec() >= hqs->next_make) {
        hq = hostqp_make(hqs, rxq);
    }
    for (unsigned int i = 1; !hq && i < hqs->n_rxq; i++) {
        hq = hostqp_take_ready(hqs, (rxq + i) % hqs->n_rxq);
    }
    return hq;
}

static void
hostqp_use(struct ipoib_hostqps *hqs, struct hostqp *hq)
{
    hq->state = HOSTQP_IN_USE;
    hq->next_probe = time_msec() + PROBE_INTERVAL;
    hq->next = NULL;
    hqs->n_in_use++;
}

void
ipoib_hostqps_assign(struct ipoib_hostqps *hqs, struct ipoib_host_table *hosts,
                     struct ipoib_host *host)
{
    size_t max = hqs->max + (ipoib_host_routes(host)
                             ? IPOIB_MAX_ROUTER_QPS : 0);
    struct hostqp *hq = NULL;
    unsigned int rxq;

    if (host->qp || !hqs->n_rxq) {
        return;
    }
    rxq = hash_mac(host->mac, 0, 0) % hqs->n_rxq;
    if (hqs->n_in_use < max && hqs->rxqs[rxq]->srq) {
        hq = hostqp_take(hqs, rxq, max);
    }
    if (hq) {
        hostqp_use(hqs, hq);
        hqs->n_sharing -= host->shares_qp;
        host->qp = hq;
        host->n_qps = 1;
        host->rxq = hq->rxq;
        ipoib_host_set_qpn(hosts, host, hq->qp->qp_num, false);
    } else if (!host->shares_qp) {
        hqs->n_sharing++;
        host->rxq = rxq;
        ipoib_host_set_qpn(hosts, host, hqs->rxqs[rxq]->base_qp->qp_num, true);
    }
}


/* Several of one host. */

bool
ipoib_hostqps_spread(struct ipoib_hostqps *hqs, struct ipoib_host_table *hosts,
                     struct ipoib_host *host, unsigned int n)
{
    struct hostqp *last = host->qp;
    unsigned int before = host->n_qps;

    if (!last) {
        return false;
    }
    while (last->next) {
        last = last->next;
    }
    n = MIN(n, hqs->n_rxq);
    while (host->n_qps < n && hqs->n_in_use < hqs->max) {
        unsigned int rxq = (host->rxq + host->n_qps) % hqs->n_rxq;
        struct hostqp *hq = hostqp_take_ready(hqs, rxq);

        if (!hq && room_for(hqs, hqs->max) && time_msec() >= hqs->next_make) {
            hq = hostqp_make(hqs, rxq);
        }
        if (!hq) {
            break;
        }
        hostqp_use(hqs, hq);
        ipoib_host_add_qpn(hosts, host, hq->qp->qp_num);
        last->next = hq;
        last = hq;
        host->n_qps++;
    }
    return host->n_qps > before;
}

uint32_t
ipoib_hostqps_pick(const struct ipoib_host *host, uint32_t hash)
{
    const struct hostqp *hq = host->qp;

    if (!hq) {
        return host->qpn;
    }
    for (uint32_t i = hash % host->n_qps; i; i--) {
        hq = hq->next;
    }
    return hq->qp->qp_num;
}


/* Retiring. */

static void
grace_unref(struct grace *grace)
{
    if (grace && ovs_refcount_unref(&grace->refs) == 1) {
        free(grace);
    }
}

static void
grace_end(struct grace *grace)
{
    atomic_store(&grace->over, true);
    grace_unref(grace);
}

static struct grace *
grace_start(void)
{
    struct grace *grace = xmalloc(sizeof *grace);

    ovs_refcount_init(&grace->refs);
    ovs_refcount_ref(&grace->refs);
    atomic_init(&grace->over, false);
    ovsrcu_postpone(grace_end, grace);
    return grace;
}

/* Whatever was on its way to 'hq' has come, or does not matter any more. */
static void
hostqp_end_probe(struct hostqp *hq, long long int now)
{
    if (hq->probing) {
        hq->probing = false;
        ovs_list_remove(&hq->probe_node);
    }
    hq->n_missed = 0;
    hq->next_probe = now + PROBE_INTERVAL;
}

static void
hostqp_retire(struct ipoib_hostqps *hqs, struct hostqp *hq)
{
    hostqp_end_probe(hq, time_msec());
    hq->state = HOSTQP_DRAINING;
    hq->since = time_msec();
    hq->last_wqe = hq->counted = false;
    hq->grace = grace_start();
    ipoib_verbs_ud_to_error(hqs->shared->verbs, hq->qp);
    ovs_list_push_back(&hqs->draining, &hq->list_node);
    hqs->n_draining++;
    hqs->n_in_use--;
}

void
ipoib_hostqps_release(struct ipoib_hostqps *hqs,
                      struct ipoib_host_table *hosts, struct ipoib_host *host)
{
    struct hostqp *hq = host->qp;

    if (host->qpn) {
        hqs->n_sharing -= host->shares_qp;
        ipoib_host_set_qpn(hosts, host, 0, false);
    }
    host->qp = NULL;
    host->n_qps = 0;
    for (bool first = true; hq; first = false) {
        struct hostqp *next = hq->next;

        if (!first) {
            ipoib_host_del_qpn(hosts, host, hq->qp->qp_num);
        }
        hostqp_retire(hqs, hq);
        hq = next;
    }
}

static void
hostqp_free(struct ipoib_hostqps *hqs, struct hostqp *hq)
{
    int error;

    hostqp_end_probe(hq, 0);
    ipoib_table_remove(hqs->shared->own_qpns, hq->qp->qp_num);
    ipoib_ctlq_forget(hqs->ctlq, hq->qp->qp_num);
    hmap_remove(&hqs->by_qpn, &hq->node);
    error = hqs->shared->verbs->destroy_qp(hq->qp);
    if (error) {
        VLOG_WARN("cannot destroy a queue pair (%s)", ovs_strerror(error));
    }
    grace_unref(hq->grace);
    free(hq);
}

/* True if nothing of 'hq' is in its receive queue's CQ any more. */
static bool
hostqp_is_drained(struct ipoib_hostqps *hqs, struct hostqp *hq,
                  long long int now)
{
    bool over, late = now >= hq->since + DRAIN_TIMEOUT;
    uint64_t drained;

    if (!hq->last_wqe && !late) {
        return false;
    }
    atomic_read_relaxed(&hqs->rxqs[hq->rxq]->drained, &drained);
    if (!hq->counted) {
        hq->counted = true;
        hq->drained = drained;
        return false;
    }
    atomic_read(&hq->grace->over, &over);
    return over && (drained - hq->drained >= 2 || late);
}

static void
hostqp_rest(struct ipoib_hostqps *hqs, struct hostqp *hq, long long int now)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

    if (now >= hq->since + DRAIN_TIMEOUT) {
        ipoib_rxq_suspect_loss(hqs->rxqs[hq->rxq]);
    }
    hqs->shared->verbs->modify_qp(hq->qp, &attr, IBV_QP_STATE);
    ipoib_ctlq_forget(hqs->ctlq, hq->qp->qp_num);
    ovs_list_remove(&hq->list_node);
    hqs->n_draining--;
    hq->state = HOSTQP_RESTING;
    hq->since = now;
    ovs_list_push_back(&hqs->resting, &hq->list_node);
    hqs->n_resting++;
}

static void
run_retirement(struct ipoib_hostqps *hqs, long long int now)
{
    struct hostqp *hq;

    LIST_FOR_EACH_SAFE (hq, list_node, &hqs->draining) {
        if (hostqp_is_drained(hqs, hq, now)) {
            hostqp_rest(hqs, hq, now);
        }
    }
    LIST_FOR_EACH_SAFE (hq, list_node, &hqs->resting) {
        if (now < hq->since + IPOIB_QPN_REST
            && hqs->n_resting <= MAX_RESTING) {
            break;
        }
        ovs_list_remove(&hq->list_node);
        hqs->n_resting--;
        hostqp_free(hqs, hq);
    }
}

void
ipoib_hostqps_clear(struct ipoib_hostqps *hqs)
{
    struct hostqp *hq;

    if (hmap_is_empty(&hqs->by_qpn)) {
        return;
    }
    HMAP_FOR_EACH_SAFE (hq, node, &hqs->by_qpn) {
        hostqp_free(hqs, hq);
    }
    ovs_list_init(&hqs->draining);
    ovs_list_init(&hqs->resting);
    for (unsigned int i = 0; i < hqs->n_rxq; i++) {
        ovs_list_init(&hqs->ready[i]);
        hqs->n_ready[i] = 0;
    }
    hqs->n_in_use = hqs->n_draining = hqs->n_resting = hqs->n_sharing = 0;
}


/* The rest. */

void
ipoib_hostqps_update(struct ipoib_hostqps *hqs,
                     const struct ipoib_ud_params *ud, bool restart)
{
    const struct ipoib_verbs *verbs = hqs->shared->verbs;
    struct ibv_qp_attr attr = { .qkey = ud->qkey };
    struct hostqp *hq;

    hqs->ud = *ud;
    HMAP_FOR_EACH (hq, node, &hqs->by_qpn) {
        int error;

        if (hq->state != HOSTQP_READY && hq->state != HOSTQP_IN_USE) {
            continue;
        }
        if (restart) {
            error = ipoib_verbs_ud_restart(verbs, hq->qp, ud);
            ipoib_ctlq_forget(hqs->ctlq, hq->qp->qp_num);
            ipoib_rxq_suspect_loss(hqs->rxqs[hq->rxq]);
        } else {
            error = verbs->modify_qp(hq->qp, &attr, IBV_QP_QKEY);
        }
        if (error) {
            VLOG_WARN("cannot change a queue pair (%s)", ovs_strerror(error));
        }
    }
}

bool
ipoib_hostqps_restart(struct ipoib_hostqps *hqs, uint32_t qpn)
{
    struct hostqp *hq = hostqp_find(hqs, qpn);
    struct ibv_qp *qp = (hq && hq->state == HOSTQP_READY
                         ? hq->qp : ipoib_hostqps_find(hqs, qpn));
    int error;

    if (!qp) {
        return false;
    }
    error = ipoib_verbs_ud_restart(hqs->shared->verbs, qp, &hqs->ud);
    ipoib_ctlq_forget(hqs->ctlq, qpn);
    for (unsigned int i = 0; i < hqs->n_rxq; i++) {
        if (hq ? hq->rxq == i : hqs->rxqs[i]->base_qp == qp) {
            ipoib_rxq_suspect_loss(hqs->rxqs[i]);
        }
    }
    if (error) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "cannot start queue pair 0x%06x again (%s)", qpn,
                     ovs_strerror(error));
    }
    return !error;
}

bool
ipoib_hostqps_event(struct ipoib_hostqps *hqs, enum ibv_event_type type,
                    uint32_t qpn)
{
    struct hostqp *hq = hostqp_find(hqs, qpn);

    if (type == IBV_EVENT_QP_LAST_WQE_REACHED) {
        if (hq) {
            hq->last_wqe = true;
        }
        return false;
    }
    return type != IBV_EVENT_SQ_DRAINED && ipoib_hostqps_restart(hqs, qpn);
}

bool
ipoib_hostqps_resume(struct ipoib_hostqps *hqs, uint32_t qpn)
{
    const struct ipoib_verbs *verbs = hqs->shared->verbs;
    struct ibv_qp *qp = ipoib_hostqps_find(hqs, qpn);
    struct ibv_qp_init_attr init_attr;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .cur_qp_state = IBV_QPS_SQE,
    };

    if (!qp) {
        return false;
    }
    if (!verbs->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE)) {
        return true;
    }
    memset(&attr, 0, sizeof attr);
    return (!verbs->query_qp(qp, &attr, IBV_QP_STATE, &init_attr)
            && attr.qp_state == IBV_QPS_ERR
            && ipoib_hostqps_restart(hqs, qpn));
}

void
ipoib_hostqps_probed(struct ipoib_hostqps *hqs, uint32_t qpn,
                     long long int now)
{
    struct hostqp *hq = hostqp_find(hqs, qpn);

    if (hq && hq->probing) {
        hostqp_end_probe(hq, now);
    }
}

void
ipoib_hostqps_watch(struct ipoib_hostqps *hqs,
                    const struct ipoib_hostqps_watcher *w, long long int now)
{
    size_t n = ovs_list_size(&hqs->probing);
    struct hostqp *hq;

    LIST_FOR_EACH_SAFE (hq, probe_node, &hqs->probing) {
        hq->n_missed += hqs->rxqs[hq->rxq]->watch.alive;
        if (hq->n_missed < PROBE_MISSED) {
            w->probe(w->aux, hq->qp, hq->rxq, true);
        } else {
            hostqp_end_probe(hq, now);
            w->stalled(w->aux, hq->qp->qp_num);
        }
    }
    if (n >= PROBE_MAX) {
        return;
    }
    HMAP_FOR_EACH (hq, node, &hqs->by_qpn) {
        if (hq->state == HOSTQP_IN_USE && !hq->probing
            && now >= hq->next_probe) {
            hq->probing = true;
            ovs_list_push_back(&hqs->probing, &hq->probe_node);
            w->probe(w->aux, hq->qp, hq->rxq, false);
            if (++n >= PROBE_MAX) {
                break;
            }
        }
    }
}

static void
run_ready(struct ipoib_hostqps *hqs, long long int now)
{
    size_t n = MIN(N_MAKE, room_for(hqs, hqs->max));

    if (now < hqs->next_make) {
        return;
    }
    for (unsigned int i = 0; i < hqs->n_rxq && n; i++) {
        while (hqs->rxqs[i]->srq && hqs->n_ready[i] < N_READY && n) {
            struct hostqp *hq = hostqp_make(hqs, i);

            if (!hq) {
                return;
            }
            ovs_list_push_back(&hqs->ready[i], &hq->list_node);
            hqs->n_ready[i]++;
            n--;
        }
    }
}

static bool
lacks_ready(const struct ipoib_hostqps *hqs)
{
    if (room_for(hqs, hqs->max)) {
        for (unsigned int i = 0; i < hqs->n_rxq; i++) {
            if (hqs->n_ready[i] < N_READY && hqs->rxqs[i]->srq) {
                return true;
            }
        }
    }
    return false;
}

void
ipoib_hostqps_run(struct ipoib_hostqps *hqs, long long int now)
{
    run_retirement(hqs, now);
    run_ready(hqs, now);
}

void
ipoib_hostqps_wait(struct ipoib_hostqps *hqs)
{
    if (!ovs_list_is_empty(&hqs->draining)) {
        poll_timer_wait(100);
    }
    if (!ovs_list_is_empty(&hqs->resting)) {
        struct hostqp *hq = CONTAINER_OF(ovs_list_front(&hqs->resting),
                                         struct hostqp, list_node);

        poll_timer_wait_until(hq->since + IPOIB_QPN_REST);
    }
    if (lacks_ready(hqs)) {
        poll_timer_wait_until(MAX(hqs->next_make, time_msec() + 1));
    }
}

void
ipoib_hostqps_get_stats(const struct ipoib_hostqps *hqs,
                        struct ipoib_hostqp_stats *stats)
{
    *stats = (struct ipoib_hostqp_stats) {
        .n_in_use = hqs->n_in_use,
        .n_draining = hqs->n_draining,
        .n_resting = hqs->n_resting,
        .n_sharing = hqs->n_sharing,
        .n_made = hqs->n_made,
        .n_failed = hqs->n_failed,
    };
    for (unsigned int i = 0; i < hqs->n_rxq; i++) {
        stats->n_ready += hqs->n_ready[i];
    }
}
