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
#include "ipoib-sa.h"

#include <errno.h>
#include <string.h>

#include "coverage.h"
#include "ipoib-sa-rmpp.h"
#include "openvswitch/list.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "random.h"
#include "timeval.h"
#include "unaligned.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_sa);

COVERAGE_DEFINE(ipoib_sa_sent);
COVERAGE_DEFINE(ipoib_sa_resent);
COVERAGE_DEFINE(ipoib_sa_timeout);
COVERAGE_DEFINE(ipoib_sa_late);
COVERAGE_DEFINE(ipoib_sa_bad);

/* The low 32 bits of a transaction ID are a sequence number and the slot of
 * the transaction.  The high 32 bits are not looked at in an answer: a kernel
 * on the way may have put its own there. */
#define SA_SLOT_BITS 8
#define SA_N_SLOTS (1u << SA_SLOT_BITS)

#define SA_TIMEOUT 500          /* Of the first try, ms; then it doubles. */
#define SA_TRIES 4
#define SA_INFO_TIMEOUT 1000    /* Of each try of ClassPortInfo, ms. */
#define SA_INFO_TRIES 3
#define SA_AGAIN 10             /* Until a busy transport is tried again. */
#define SA_ONCE_SPINS 1000      /* Looks for room to send what cannot wait. */

struct ipoib_sa_request {
    struct ovs_list node;       /* In ipoib_sa's 'queued' or 'outstanding'. */
    struct ib_sa_mad mad;
    ipoib_sa_cb *cb;
    ipoib_sa_table_cb *table_cb; /* Instead of 'cb': GetTable. */
    struct ipoib_rmpp table;    /* If 'table_cb'. */
    void *aux;
    bool outstanding;           /* Has a slot. */
    bool sent_before;
    long long int sent;         /* Last try, time_usec(). */
    uint32_t tid;               /* Low 32 bits; only if 'outstanding'. */
    unsigned int n_tries;       /* Made. */
    unsigned int max_tries;
    bool fixed;                 /* The timeout does not double. */
    long long int timeout;      /* Of the current try. */
    long long int deadline;     /* When 'timeout' is over. */
    bool busy;                  /* SA said BUSY: deadline is to be made. */
    bool undelivered;           /* No answer will come: likewise. */
};

struct ipoib_sa {
    struct ipoib_mad_transport *transport;
    struct ipoib_mad_dest dest;
    ipoib_sa_report_cb *report_cb;
    void *report_aux;

    struct ovs_list queued;
    struct ovs_list outstanding;
    struct ipoib_sa_request *slots[SA_N_SLOTS];
    unsigned int next_slot;
    unsigned int window;
    uint32_t tid_high;
    uint32_t seq;
    long long int blocked;      /* Transport is full: not before this. */

    struct ipoib_sa_request *info_request;
    bool info_done;             /* Known, or given up. */
    struct ipoib_sa_info info;

    struct ipoib_sa_stats stats;
};

static void sa_ask_info(struct ipoib_sa *);

static bool
sa_can_send(const struct ipoib_sa *sa)
{
    return sa->transport && sa->dest.lid;
}

struct ipoib_sa *
ipoib_sa_create(void)
{
    struct ipoib_sa *sa = xzalloc(sizeof *sa);

    ovs_list_init(&sa->queued);
    ovs_list_init(&sa->outstanding);
    sa->window = IPOIB_SA_WINDOW;
    sa->tid_high = random_uint32();
    sa->seq = random_uint32();
    return sa;
}

static void
sa_free(struct ipoib_sa_request *r)
{
    ipoib_rmpp_destroy(&r->table);
    free(r);
}

void
ipoib_sa_destroy(struct ipoib_sa *sa)
{
    struct ipoib_sa_request *r;

    if (!sa) {
        return;
    }
    LIST_FOR_EACH_POP (r, node, &sa->queued) {
        sa_free(r);
    }
    LIST_FOR_EACH_POP (r, node, &sa->outstanding) {
        sa_free(r);
    }
    free(sa);
}

void
ipoib_sa_set_window(struct ipoib_sa *sa, unsigned int window)
{
    sa->window = MIN(MAX(window, 1), SA_N_SLOTS);
}

void
ipoib_sa_set_report_cb(struct ipoib_sa *sa, ipoib_sa_report_cb *cb, void *aux)
{
    sa->report_cb = cb;
    sa->report_aux = aux;
}

bool
ipoib_sa_send_only_full_member(const struct ipoib_sa *sa)
{
    return sa->info.cap_mask2 & IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER;
}

bool
ipoib_sa_is_settled(const struct ipoib_sa *sa)
{
    return sa->info_done;
}

void
ipoib_sa_get_stats(const struct ipoib_sa *sa, struct ipoib_sa_stats *stats)
{
    *stats = sa->stats;
    stats->n_queued = ovs_list_size(&sa->queued);
    stats->window = sa->window;
}

void
ipoib_sa_get_info(const struct ipoib_sa *sa, struct ipoib_sa_info *info)
{
    *info = sa->info;
}

/* 100, 200, 500 us, 1, 2, 5 ms ... 5 s. */
uint64_t
ipoib_sa_latency_limit(unsigned int i)
{
    static const unsigned int steps[] = { 1, 2, 5 };
    uint64_t limit = 100;

    if (i >= IPOIB_SA_N_LATENCIES - 1) {
        return UINT64_MAX;
    }
    for (unsigned int decade = i / ARRAY_SIZE(steps); decade; decade--) {
        limit *= 10;
    }
    return limit * steps[i % ARRAY_SIZE(steps)];
}

static void
sa_count_latency(struct ipoib_sa *sa, long long int usec)
{
    unsigned int i = 0;

    while (MAX(usec, 0) > ipoib_sa_latency_limit(i)) {
        i++;
    }
    sa->stats.latencies[i]++;
}

static void
sa_count_refusal(struct ipoib_sa *sa, uint16_t status)
{
    sa->stats.n_refused++;
    for (unsigned int i = 0; i < IPOIB_SA_N_STATUSES; i++) {
        struct ipoib_sa_refusals *r = &sa->stats.refusals[i];

        if (!r->n || r->status == status) {
            r->status = status;
            r->n++;
            return;
        }
    }
}

/* Requests. */

static void
sa_init_mad(const struct ipoib_sa *sa, struct ib_sa_mad *mad, uint8_t method,
            uint16_t attr_id, uint64_t comp_mask, const void *record,
            size_t len)
{
    ovs_assert(len <= sizeof mad->data);

    memset(mad, 0, sizeof *mad);
    mad->base_version = IB_MAD_BASE_VERSION;
    mad->mgmt_class = IB_MGMT_CLASS_SA;
    mad->class_version = IB_SA_CLASS_VERSION;
    mad->method = method;
    mad->attr_id = htons(attr_id);
    mad->comp_mask[0] = htonl(comp_mask >> 32);
    mad->comp_mask[1] = htonl(comp_mask);
    put_32aligned_be64(&mad->tid, htonll((uint64_t) sa->tid_high << 32));
    if (len) {
        memcpy(mad->data, record, len);
    }
}

struct ipoib_sa_request *
ipoib_sa_send(struct ipoib_sa *sa, uint8_t method, uint16_t attr_id,
              uint64_t comp_mask, const void *record, size_t len,
              ipoib_sa_cb *cb, void *aux)
{
    struct ipoib_sa_request *r = xzalloc(sizeof *r);

    sa_init_mad(sa, &r->mad, method, attr_id, comp_mask, record, len);
    r->cb = cb;
    r->aux = aux;
    r->max_tries = SA_TRIES;
    r->timeout = SA_TIMEOUT;
    ovs_list_push_back(&sa->queued, &r->node);
    return r;
}

struct ipoib_sa_request *
ipoib_sa_send_get_table(struct ipoib_sa *sa, uint16_t attr_id,
                        uint64_t comp_mask, const void *record, size_t len,
                        ipoib_sa_table_cb *cb, void *aux)
{
    struct ipoib_sa_request *r = ipoib_sa_send(sa, IB_METHOD_GET_TABLE,
                                               attr_id, comp_mask, record,
                                               len, NULL, aux);

    r->table_cb = cb;
    ipoib_rmpp_init(&r->table);
    return r;
}

int
ipoib_sa_send_once(struct ipoib_sa *sa, uint8_t method, uint16_t attr_id,
                   uint64_t comp_mask, const void *record, size_t len)
{
    struct ib_sa_mad mad;
    int error;

    if (!sa_can_send(sa)) {
        return ENETDOWN;
    }
    sa_init_mad(sa, &mad, method, attr_id, comp_mask, record, len);
    /* No slot answers to this one: all that are in use have another
     * sequence number. */
    put_32aligned_be64(&mad.tid, htonll((uint64_t) sa->tid_high << 32
                                        | ++sa->seq << SA_SLOT_BITS));
    error = sa->transport->class->send(sa->transport, &mad, &sa->dest);
    for (int i = 0; error == EAGAIN && i < SA_ONCE_SPINS; i++) {
        /* The completions of what went before make room, which takes
         * microseconds. */
        sa->transport->class->run(sa->transport);
        error = sa->transport->class->send(sa->transport, &mad, &sa->dest);
    }
    if (!error) {
        sa->stats.n_sent++;
    }
    return error;
}

/* Takes 'r' out of whatever list it is in. */
static void
sa_unlink(struct ipoib_sa *sa, struct ipoib_sa_request *r)
{
    ovs_list_remove(&r->node);
    if (r->outstanding) {
        sa->slots[r->tid & (SA_N_SLOTS - 1)] = NULL;
        sa->stats.n_outstanding--;
        r->outstanding = false;
    }
}

void
ipoib_sa_cancel(struct ipoib_sa *sa, struct ipoib_sa_request *r)
{
    if (r) {
        sa_unlink(sa, r);
        sa_free(r);
    }
}

static void
sa_finish_table(struct ipoib_sa *sa, struct ipoib_sa_request *r, int error,
                uint16_t status)
{
    size_t n = status ? 0 : ipoib_rmpp_n_records(&r->table);

    sa_unlink(sa, r);
    r->table_cb(r->aux, error, status, r->table.data, n,
                r->table.record_size);
    sa_free(r);
}

/* Ends 'r', whose memory is gone before its callback runs. */
static void
sa_finish(struct ipoib_sa *sa, struct ipoib_sa_request *r, int error,
          uint16_t status, const struct ib_sa_mad *mad)
{
    ipoib_sa_cb *cb = r->cb;
    void *aux = r->aux;

    if (r->table_cb) {
        sa_finish_table(sa, r, error, status);
        return;
    }
    sa_unlink(sa, r);
    free(r);
    cb(aux, error, status, mad);
}

/* Sends 'r', which has a slot, once, under a new transaction ID.  Returns
 * false if the transport has no room now. */
static bool
sa_transmit(struct ipoib_sa *sa, struct ipoib_sa_request *r, unsigned int slot,
            long long int now)
{
    int error;

    if (r->table_cb) {
        ipoib_rmpp_restart(&r->table);
    }
    r->tid = ++sa->seq << SA_SLOT_BITS | slot;
    put_32aligned_be64(&r->mad.tid,
                       htonll((uint64_t) sa->tid_high << 32 | r->tid));
    error = sa->transport->class->send(sa->transport, &r->mad, &sa->dest);
    if (error == EAGAIN) {
        sa->blocked = now + SA_AGAIN;
        return false;
    } else if (error) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        /* As good as lost: the timeout is the time until the next try. */
        VLOG_INFO_RL(&rl, "failed to send a request to the SA (%s)",
                     ovs_strerror(error));
    }

    if (r->sent_before) {
        sa->stats.n_resent++;
        COVERAGE_INC(ipoib_sa_resent);
    } else {
        sa->stats.n_sent++;
        COVERAGE_INC(ipoib_sa_sent);
    }
    r->sent_before = true;
    r->sent = time_usec();
    r->busy = r->undelivered = false;
    if (r->n_tries++ && !r->fixed) {
        r->timeout *= 2;
    }
    r->deadline = now + r->timeout;
    return true;
}

/* Gives queued requests slots, as far as the window allows. */
static void
sa_send_queued(struct ipoib_sa *sa, long long int now)
{
    while (sa_can_send(sa) && now >= sa->blocked
           && sa->stats.n_outstanding < sa->window
           && !ovs_list_is_empty(&sa->queued)) {
        struct ipoib_sa_request *r
            = CONTAINER_OF(ovs_list_front(&sa->queued),
                           struct ipoib_sa_request, node);

        while (sa->slots[sa->next_slot % SA_N_SLOTS]) {
            sa->next_slot++;
        }
        if (!sa_transmit(sa, r, sa->next_slot % SA_N_SLOTS, now)) {
            break;
        }
        sa->slots[r->tid & (SA_N_SLOTS - 1)] = r;
        sa->next_slot++;
        sa->stats.n_outstanding++;
        r->outstanding = true;
        ovs_list_remove(&r->node);
        ovs_list_push_back(&sa->outstanding, &r->node);
    }
}

/* Puts all outstanding requests back into the queue, before those that wait
 * there already, as if they had not been sent. */
static void
sa_requeue_all(struct ipoib_sa *sa)
{
    while (!ovs_list_is_empty(&sa->outstanding)) {
        struct ipoib_sa_request *r
            = CONTAINER_OF(ovs_list_back(&sa->outstanding),
                           struct ipoib_sa_request, node);

        sa_unlink(sa, r);
        r->n_tries = 0;
        r->timeout = r->fixed ? SA_INFO_TIMEOUT : SA_TIMEOUT;
        r->busy = r->undelivered = false;
        ovs_list_push_front(&sa->queued, &r->node);
    }
    sa->blocked = 0;
}

/* The time until a request that the SA was too busy for is sent again: about
 * the time that the next try would have had, so that the clients of an SA
 * that was overrun don't come back at the same time. */
static long long int
sa_busy_pause(const struct ipoib_sa_request *r)
{
    return r->timeout / 2 + random_range(r->timeout);
}

static void
sa_run_outstanding(struct ipoib_sa *sa, struct ipoib_sa_request *r,
                   long long int now)
{
    if (r->busy) {
        r->busy = false;
        r->deadline = now + sa_busy_pause(r);
    } else if (r->undelivered) {
        /* Soon, but not at once: the SA may be about to start. */
        r->undelivered = false;
        r->deadline = MIN(r->deadline, now + r->timeout / 4);
    } else if (now < r->deadline) {
        return;
    } else if (r->n_tries >= r->max_tries) {
        sa->stats.n_timeouts++;
        COVERAGE_INC(ipoib_sa_timeout);
        sa_finish(sa, r, ETIMEDOUT, 0, NULL);
    } else if (now >= sa->blocked) {
        unsigned int slot = r->tid & (SA_N_SLOTS - 1);
        uint32_t tid = r->tid;

        if (!sa_transmit(sa, r, slot, now)) {
            r->tid = tid;
        }
    }
}

void
ipoib_sa_run(struct ipoib_sa *sa, long long int now)
{
    unsigned int i;

    if (sa_can_send(sa)) {
        /* By slot, since callbacks may cancel any request. */
        for (i = 0; i < SA_N_SLOTS && sa->stats.n_outstanding; i++) {
            if (sa->slots[i] && sa_can_send(sa)) {
                sa_run_outstanding(sa, sa->slots[i], now);
            }
        }
        sa_send_queued(sa, now);
    }
}

void
ipoib_sa_wait(struct ipoib_sa *sa)
{
    struct ipoib_sa_request *r;

    if (!sa_can_send(sa)) {
        return;
    }
    if (!ovs_list_is_empty(&sa->queued)
        && sa->stats.n_outstanding < sa->window) {
        poll_timer_wait_until(sa->blocked);
    }
    LIST_FOR_EACH (r, node, &sa->outstanding) {
        poll_timer_wait_until(r->busy || r->undelivered
                              ? 0 : MAX(r->deadline, sa->blocked));
    }
}

/* Where requests go. */

void
ipoib_sa_set_transport(struct ipoib_sa *sa,
                       struct ipoib_mad_transport *transport)
{
    if (transport != sa->transport) {
        sa->transport = transport;
        sa_requeue_all(sa);
        sa_ask_info(sa);
    }
}

void
ipoib_sa_set_dest(struct ipoib_sa *sa, const struct ipoib_mad_dest *dest)
{
    if (!ipoib_mad_dest_equals(dest, &sa->dest)) {
        sa->dest = *dest;
        sa_requeue_all(sa);
        sa_ask_info(sa);
    } else if (sa->info_done && !sa->info.known) {
        /* Somebody thinks that something is new: another chance. */
        sa_ask_info(sa);
    }
}

/* ClassPortInfo. */

static void
sa_info_cb(void *sa_, int error, uint16_t status, const struct ib_sa_mad *mad)
{
    struct ipoib_sa *sa = sa_;

    sa->info_request = NULL;
    sa->info_done = true;
    if (!error && !status) {
        const struct ib_class_port_info *info
            = ALIGNED_CAST(const struct ib_class_port_info *, mad->data);

        sa->info = (struct ipoib_sa_info) {
            .known = true,
            .base_version = info->base_version,
            .class_version = info->class_version,
            .cap_mask = ntohs(info->cap_mask),
            .cap_mask2 = ntohl(info->cap_mask2_resp) >> 5,
            .resp_time = ntohl(info->cap_mask2_resp) & 0x1f,
        };
        VLOG_DBG("SA at LID %"PRIu16" %s send-only full members",
                 sa->dest.lid,
                 ipoib_sa_send_only_full_member(sa) ? "knows" : "lacks");
    } else {
        sa->info.silent = error == ETIMEDOUT;
        VLOG_INFO("SA at LID %"PRIu16" does not tell its capabilities (%s)",
                  sa->dest.lid, error ? ovs_strerror(error)
                                      : ib_sa_status_to_string(status));
    }
}

static void
sa_ask_info(struct ipoib_sa *sa)
{
    ipoib_sa_cancel(sa, sa->info_request);
    sa->info_request = NULL;
    sa->info_done = false;
    memset(&sa->info, 0, sizeof sa->info);
    if (sa_can_send(sa)) {
        struct ipoib_sa_request *r;

        r = ipoib_sa_send(sa, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, NULL,
                          0, sa_info_cb, sa);
        r->max_tries = SA_INFO_TRIES;
        r->timeout = SA_INFO_TIMEOUT;
        r->fixed = true;
        /* Ahead of all others, some of which wait for it. */
        ovs_list_remove(&r->node);
        ovs_list_push_front(&sa->queued, &r->node);
        sa->info_request = r;
    }
}

/* What arrives. */

static void
sa_bad(struct ipoib_sa *sa)
{
    sa->stats.n_bad++;
    COVERAGE_INC(ipoib_sa_bad);
}

/* True if what came from 'slid' (0: the transport does not tell) can be the
 * SA's. */
static bool
sa_is_from_sa(const struct ipoib_sa *sa, uint16_t slid)
{
    return !slid || slid == sa->dest.lid;
}

static void
sa_receive_report(struct ipoib_sa *sa, const struct ib_sa_mad *mad,
                  uint16_t slid)
{
    struct ib_sa_mad resp = *mad;

    if (mad->attr_id != htons(IB_ATTR_NOTICE) || !sa_is_from_sa(sa, slid)) {
        sa_bad(sa);
        return;
    }
    sa->stats.n_reports++;
    if (sa_can_send(sa)) {
        resp.method = IB_METHOD_REPORT_RESP;
        resp.status = 0;
        /* If it cannot be sent, the SA sends the Report again. */
        sa->transport->class->send(sa->transport, &resp, &sa->dest);
    }
    if (sa->report_cb) {
        sa->report_cb(sa->report_aux,
                      ALIGNED_CAST(const struct ib_notice *, mad->data));
    }
}

/* A segment of the table that 'r' asked for. */
static void
sa_receive_segment(struct ipoib_sa *sa, struct ipoib_sa_request *r,
                   const struct ib_sa_mad *mad)
{
    enum ipoib_rmpp_result result;
    struct ib_sa_mad ack;
    bool send_ack;

    result = ipoib_rmpp_receive(&r->table, mad, &ack, &send_ack);
    if (send_ack && sa->transport && !sa->transport->class->rmpp) {
        /* If it cannot be sent, the segment comes again. */
        sa->transport->class->send(sa->transport, &ack, &sa->dest);
    }
    switch (result) {
    case IPOIB_RMPP_MORE:
        r->deadline = time_msec() + r->timeout;
        /* Fall through. */
    case IPOIB_RMPP_IGNORE:
        return;
    case IPOIB_RMPP_BAD:
        sa_bad(sa);
        /* Fall through. */
    case IPOIB_RMPP_DONE:
        break;
    default:
        OVS_NOT_REACHED();
    }
    sa->stats.n_answers++;
    sa_count_latency(sa, time_usec() - r->sent);
    sa_finish(sa, r, result == IPOIB_RMPP_BAD ? EPROTO : 0, 0, mad);
}

static void
sa_receive_answer(struct ipoib_sa *sa, const struct ib_sa_mad *mad,
                  uint16_t slid)
{
    uint32_t tid = ntohll(get_32aligned_be64(&mad->tid));
    struct ipoib_sa_request *r = sa->slots[tid & (SA_N_SLOTS - 1)];
    uint16_t status = ntohs(mad->status);
    uint8_t method;

    if (!r || r->tid != tid) {
        sa->stats.n_late++;
        COVERAGE_INC(ipoib_sa_late);
        return;
    }

    /* Only the SA answers, from where it was asked: after a change of 'dest'
     * everything was sent again. */
    if (!sa_is_from_sa(sa, slid)) {
        sa_bad(sa);
        return;
    }

    /* A Set is answered by a GetResp, all others by their own response. */
    method = r->mad.method == IB_METHOD_SET ? IB_METHOD_GET : r->mad.method;
    if (mad->method != (method | IB_METHOD_RESP)
        || mad->attr_id != r->mad.attr_id) {
        sa_bad(sa);
        return;
    }

    if (status & IB_MAD_STATUS_BUSY) {
        sa->stats.n_busy++;
        if (r->n_tries < r->max_tries) {
            r->busy = true;
            return;
        }
    }
    if (r->table_cb && !status && mad->rmpp_flags & IB_RMPP_FLAG_ACTIVE) {
        sa_receive_segment(sa, r, mad);
        return;
    }
    sa->stats.n_answers++;
    sa_count_latency(sa, time_usec() - r->sent);
    if (status) {
        sa_count_refusal(sa, status);
    }
    sa_finish(sa, r, 0, status, mad);
}

void
ipoib_sa_undelivered(struct ipoib_sa *sa, const struct ib_sa_mad *mad)
{
    uint32_t tid = ntohll(get_32aligned_be64(&mad->tid));
    struct ipoib_sa_request *r = sa->slots[tid & (SA_N_SLOTS - 1)];

    sa->stats.n_undelivered++;
    if (r && r->tid == tid && !r->busy) {
        r->undelivered = true;
    }
}

void
ipoib_sa_receive(struct ipoib_sa *sa, const struct ib_sa_mad *mad,
                 uint16_t slid)
{
    if (mad->base_version != IB_MAD_BASE_VERSION
        || mad->mgmt_class != IB_MGMT_CLASS_SA) {
        sa_bad(sa);
    } else if (mad->method & IB_METHOD_RESP) {
        sa_receive_answer(sa, mad, slid);
    } else if (mad->method == IB_METHOD_REPORT) {
        sa_receive_report(sa, mad, slid);
    } else {
        sa_bad(sa);
    }
}
