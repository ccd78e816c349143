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
#include "ipoib-mad.h"

#include <errno.h>
#include <string.h>

#include "coverage.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_mad);

COVERAGE_DEFINE(ipoib_mad_rx);
COVERAGE_DEFINE(ipoib_mad_tx);
COVERAGE_DEFINE(ipoib_mad_bad_length);
COVERAGE_DEFINE(ipoib_mad_error);
COVERAGE_DEFINE(ipoib_mad_recovery);
COVERAGE_DEFINE(ipoib_mad_stalled);

/* Buffers.  Each receive starts with room for a GRH. */
#define MAD_N_RECV 64
#define MAD_N_SEND 64
#define MAD_RECV_LEN (IB_GRH_LEN + IB_MAD_LEN)
#define MAD_N_CQE (2 * (MAD_N_RECV + MAD_N_SEND))

/* A work request's ID: the generation of the queue pair (which a reset
 * increments, so that completions from before it are told apart), whether it
 * is a send, and the buffer. */
#define MAD_WR_SEND (UINT64_C(1) << 31)
#define MAD_WR_ID(GEN, INDEX) ((uint64_t) (GEN) << 32 | (INDEX))

/* How long to wait between attempts to bring the queue pair back, ms. */
#define MAD_RECOVERY_PAUSE 1000

/* Sends are looked at this often, in ms; one that takes twice as long will
 * never complete. */
#define MAD_WATCH 1000

/* Address handles: of the SA, the one before, and who sent a Report. */
#define MAD_N_AHS 4
struct mad_ah {
    struct ibv_ah *ah;          /* NULL: free. */
    struct ipoib_mad_dest dest;
    unsigned int n_sends;       /* In flight. */
    long long int used;
};

struct mad_qp {
    struct ipoib_mad_transport up;
    const struct ipoib_verbs *verbs;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    uint8_t port;
    uint16_t pkey_index;

    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buf;               /* Receive buffers, then send buffers. */
    uint32_t gen;

    uint8_t free_sends[MAD_N_SEND];
    unsigned int n_free_sends;
    struct mad_ah *send_ahs[MAD_N_SEND];
    long long int sent[MAD_N_SEND]; /* time_msec(), if in flight. */
    struct mad_ah ahs[MAD_N_AHS];

    bool failed;                /* The QP needs to be brought back. */
    bool must_reset;            /* ... with a reset. */
    long long int next_recovery;
    long long int next_watch;
};

static const struct ipoib_mad_class mad_qp_class;

static struct mad_qp *
mad_qp_cast(struct ipoib_mad_transport *transport)
{
    ovs_assert(transport->class == &mad_qp_class);
    return CONTAINER_OF(transport, struct mad_qp, up);
}

static uint8_t *
mad_recv_buf(const struct mad_qp *m, unsigned int index)
{
    return m->buf + index * MAD_RECV_LEN;
}

static uint8_t *
mad_send_buf(const struct mad_qp *m, unsigned int index)
{
    return m->buf + MAD_N_RECV * MAD_RECV_LEN + index * IB_MAD_LEN;
}

/* The index of P_Key 0xffff, else of 0x7fff, else 0, as the kernel's choice
 * for the same purpose. */
static uint16_t
mad_find_pkey(const struct mad_qp *m)
{
    struct ibv_port_attr attr;
    int limited = 0;

    memset(&attr, 0, sizeof attr);
    if (m->verbs->query_port(m->ctx, m->port, &attr)) {
        return m->pkey_index;
    }
    for (int i = attr.pkey_tbl_len - 1; i >= 0; i--) {
        ovs_be16 pkey;

        if (m->verbs->query_pkey(m->ctx, m->port, i, &pkey)) {
            continue;
        }
        if (pkey == htons(IB_PKEY_DEFAULT)) {
            return i;
        } else if (pkey == htons(IB_PKEY_DEFAULT & IB_PKEY_MASK)) {
            limited = i;
        }
    }
    return limited;
}

static int
mad_post_recv(struct mad_qp *m, unsigned int index)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t) mad_recv_buf(m, index),
        .length = MAD_RECV_LEN,
        .lkey = m->mr->lkey,
    };
    struct ibv_recv_wr wr = {
        .wr_id = MAD_WR_ID(m->gen, index),
        .sg_list = &sge,
        .num_sge = 1,
    };
    struct ibv_recv_wr *bad;

    return ibv_post_recv(m->qp, &wr, &bad);
}

/* After the QP came up (again): all send buffers are free, all receives are
 * to be posted. */
static int
mad_fill(struct mad_qp *m)
{
    m->gen++;
    m->n_free_sends = 0;
    for (unsigned int i = 0; i < MAD_N_SEND; i++) {
        m->free_sends[m->n_free_sends++] = i;
        m->send_ahs[i] = NULL;
    }
    for (unsigned int i = 0; i < MAD_N_AHS; i++) {
        m->ahs[i].n_sends = 0;
    }
    for (unsigned int i = 0; i < MAD_N_RECV; i++) {
        int error = mad_post_recv(m, i);
        if (error) {
            return error;
        }
    }
    return 0;
}

static struct ipoib_ud_params
mad_ud_params(const struct mad_qp *m)
{
    struct ipoib_ud_params params = {
        .port = m->port,
        .pkey_index = m->pkey_index,
        .qkey = IB_QKEY_GSI,
    };
    return params;
}

/* Brings the QP back by way of RESET, in place. */
static int
mad_restart(struct mad_qp *m)
{
    struct ipoib_ud_params params = mad_ud_params(m);
    int error;

    COVERAGE_INC(ipoib_mad_recovery);
    error = ipoib_verbs_ud_restart(m->verbs, m->qp, &params);
    if (!error) {
        error = mad_fill(m);
    }
    m->failed = m->must_reset = error != 0;
    if (!error) {
        VLOG_DBG("port %"PRIu8": reset the queue pair for management",
                 m->port);
    } else {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        m->next_recovery = time_msec() + MAD_RECOVERY_PAUSE;
        VLOG_WARN_RL(&rl, "port %"PRIu8": failed to bring back the queue pair "
                     "for management (%s)", m->port, ovs_strerror(error));
    }
    return error;
}

/* A completion in error stopped the QP: after a send, it is in SQE, where
 * receives go on and RTS is one step away; else in ERR. */
static void
mad_recover(struct mad_qp *m)
{
    if (!m->failed || time_msec() < m->next_recovery) {
        return;
    }
    if (!m->must_reset) {
        struct ibv_qp_init_attr init_attr;
        struct ibv_qp_attr attr;

        memset(&attr, 0, sizeof attr);
        if (!m->verbs->query_qp(m->qp, &attr, IBV_QP_STATE, &init_attr)) {
            if (attr.qp_state == IBV_QPS_RTS) {
                m->failed = false;
                return;
            } else if (attr.qp_state == IBV_QPS_SQE) {
                memset(&attr, 0, sizeof attr);
                attr.qp_state = IBV_QPS_RTS;
                attr.cur_qp_state = IBV_QPS_SQE;
                if (!m->verbs->modify_qp(m->qp, &attr, (IBV_QP_STATE
                                                        | IBV_QP_CUR_STATE))) {
                    COVERAGE_INC(ipoib_mad_recovery);
                    m->up.n_recovered++;
                    m->failed = false;
                    return;
                }
            }
        }
    }
    if (!mad_restart(m)) {
        m->up.n_recovered++;
    }
}

/* A send that does not complete, though there was no error: the queue pair
 * stands still. */
static void
mad_watch(struct mad_qp *m)
{
    long long int now = time_msec();

    if (now < m->next_watch || m->failed) {
        return;
    }
    m->next_watch = now + MAD_WATCH;
    for (unsigned int i = 0; i < MAD_N_SEND; i++) {
        if (m->send_ahs[i] && m->sent[i] + 2 * MAD_WATCH <= now) {
            COVERAGE_INC(ipoib_mad_stalled);
            m->failed = m->must_reset = true;
            return;
        }
    }
}

/* Address handles. */

/* The AH to 'dest', from the cache or made in the place of the one that was
 * used the longest ago and is not in use.  NULL with errno set on failure. */
static struct mad_ah *
mad_get_ah(struct mad_qp *m, const struct ipoib_mad_dest *dest)
{
    struct mad_ah *victim = NULL;
    struct ibv_ah_attr attr;

    for (unsigned int i = 0; i < MAD_N_AHS; i++) {
        struct mad_ah *a = &m->ahs[i];

        if (a->ah && ipoib_mad_dest_equals(&a->dest, dest)) {
            a->used = time_msec();
            return a;
        }
        if (!a->n_sends && (!victim || !a->ah
                            || (victim->ah && a->used < victim->used))) {
            victim = a;
        }
    }
    if (!victim) {
        errno = EAGAIN;
        return NULL;
    }
    if (victim->ah) {
        m->verbs->destroy_ah(victim->ah);
        victim->ah = NULL;
    }

    memset(&attr, 0, sizeof attr);
    attr.dlid = dest->lid;
    attr.sl = dest->sl;
    attr.port_num = m->port;
    if (dest->has_grh) {
        attr.is_global = 1;
        memcpy(attr.grh.dgid.raw, dest->dgid.raw, IB_GID_LEN);
    }
    victim->ah = m->verbs->create_ah(m->pd, &attr);
    if (!victim->ah) {
        return NULL;
    }
    victim->dest = *dest;
    victim->used = time_msec();
    return victim;
}

/* Sending. */

static int
mad_qp_send(struct ipoib_mad_transport *transport, const struct ib_sa_mad *mad,
            const struct ipoib_mad_dest *dest)
{
    struct mad_qp *m = mad_qp_cast(transport);
    struct ibv_send_wr wr, *bad;
    struct ibv_sge sge;
    struct mad_ah *ah;
    unsigned int slot;
    int error;

    if (m->failed) {
        return ENETDOWN;
    }
    if (!m->n_free_sends) {
        return EAGAIN;
    }
    ah = mad_get_ah(m, dest);
    if (!ah) {
        return errno ? errno : EIO;
    }

    slot = m->free_sends[m->n_free_sends - 1];
    memcpy(mad_send_buf(m, slot), mad, IB_MAD_LEN);
    sge.addr = (uintptr_t) mad_send_buf(m, slot);
    sge.length = IB_MAD_LEN;
    sge.lkey = m->mr->lkey;

    memset(&wr, 0, sizeof wr);
    wr.wr_id = MAD_WR_ID(m->gen, MAD_WR_SEND | slot);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = ah->ah;
    wr.wr.ud.remote_qpn = IB_QPN_GSI;
    wr.wr.ud.remote_qkey = IB_QKEY_GSI;
    error = ibv_post_send(m->qp, &wr, &bad);
    if (error) {
        /* Providers say ENOMEM for a full queue. */
        return error == ENOMEM ? EAGAIN : error < 0 ? -error : error;
    }
    m->n_free_sends--;
    m->send_ahs[slot] = ah;
    m->sent[slot] = time_msec();
    ah->n_sends++;
    COVERAGE_INC(ipoib_mad_tx);
    return 0;
}

static void
mad_complete_send(struct mad_qp *m, unsigned int slot)
{
    if (slot < MAD_N_SEND && m->send_ahs[slot]) {
        m->send_ahs[slot]->n_sends--;
        m->send_ahs[slot] = NULL;
        m->free_sends[m->n_free_sends++] = slot;
    }
}

/* Receiving. */

static void
mad_complete_recv(struct mad_qp *m, const struct ibv_wc *wc,
                  unsigned int index)
{
    struct ib_sa_mad mad;
    bool good = false;

    if (wc->byte_len == MAD_RECV_LEN) {
        /* A copy: it is aligned, and the buffer can be posted again. */
        memcpy(&mad, mad_recv_buf(m, index) + IB_GRH_LEN, sizeof mad);
        good = true;
    } else {
        COVERAGE_INC(ipoib_mad_bad_length);
    }
    if (mad_post_recv(m, index)) {
        m->failed = m->must_reset = true;
    }
    if (good) {
        COVERAGE_INC(ipoib_mad_rx);
        m->up.recv(m->up.aux, &mad, wc->slid);
    }
}

static void
mad_complete(struct mad_qp *m, const struct ibv_wc *wc)
{
    bool is_send = (wc->wr_id & MAD_WR_SEND) != 0;
    unsigned int index = wc->wr_id & (MAD_WR_SEND - 1);

    if (wc->wr_id >> 32 != m->gen) {
        return;                 /* From before a reset. */
    }
    if (wc->status != IBV_WC_SUCCESS) {
        COVERAGE_INC(ipoib_mad_error);
        if (wc->status != IBV_WC_WR_FLUSH_ERR) {
            static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

            VLOG_INFO_RL(&rl, "port %"PRIu8": a management datagram failed to "
                         "be %s (completion status %d)", m->port,
                         is_send ? "sent" : "received", wc->status);
        }
        m->failed = true;
        /* A receive that is lost is posted again by the reset. */
        m->must_reset |= !is_send;
    }
    if (is_send) {
        mad_complete_send(m, index);
    } else if (wc->status == IBV_WC_SUCCESS && index < MAD_N_RECV) {
        mad_complete_recv(m, wc, index);
    }
}

static void
mad_qp_run(struct ipoib_mad_transport *transport)
{
    struct mad_qp *m = mad_qp_cast(transport);
    unsigned int n_events = 0;
    struct ibv_wc wcs[16];
    struct ibv_cq *cq;
    void *cq_context;
    int n;

    while (!m->verbs->get_cq_event(m->channel, &cq, &cq_context)) {
        n_events++;
    }
    if (n_events) {
        m->verbs->ack_cq_events(m->cq, n_events);
        ibv_req_notify_cq(m->cq, 0);
    }
    while ((n = ibv_poll_cq(m->cq, ARRAY_SIZE(wcs), wcs)) > 0) {
        for (int i = 0; i < n; i++) {
            mad_complete(m, &wcs[i]);
        }
    }
    mad_watch(m);
    mad_recover(m);
}

static void
mad_qp_reset(struct ipoib_mad_transport *transport)
{
    struct mad_qp *m = mad_qp_cast(transport);

    COVERAGE_INC(ipoib_mad_stalled);
    if (!m->failed) {
        m->failed = m->must_reset = true;
        mad_recover(m);
    }
}

static void
mad_qp_wait(struct ipoib_mad_transport *transport)
{
    struct mad_qp *m = mad_qp_cast(transport);

    poll_fd_wait(m->channel->fd, POLLIN);
    if (m->failed) {
        poll_timer_wait_until(m->next_recovery);
    } else if (m->n_free_sends < MAD_N_SEND) {
        poll_timer_wait_until(m->next_watch);
    }
}

/* A UD QP's P_Key index cannot change while it runs, so that a moved P_Key
 * costs a reset; the QPN, which Reports come to, stays. */
static int
mad_qp_update(struct ipoib_mad_transport *transport)
{
    struct mad_qp *m = mad_qp_cast(transport);
    uint16_t pkey_index = mad_find_pkey(m);

    if (pkey_index == m->pkey_index) {
        return 0;
    }
    VLOG_DBG("port %"PRIu8": P_Key index for management is %"PRIu16", "
             "was %"PRIu16, m->port, pkey_index, m->pkey_index);
    m->pkey_index = pkey_index;
    return mad_restart(m);
}

static void
mad_qp_destroy(struct ipoib_mad_transport *transport)
{
    struct mad_qp *m = mad_qp_cast(transport);

    /* The QP first: it uses everything else. */
    if (m->qp) {
        m->verbs->destroy_qp(m->qp);
    }
    for (unsigned int i = 0; i < MAD_N_AHS; i++) {
        if (m->ahs[i].ah) {
            m->verbs->destroy_ah(m->ahs[i].ah);
        }
    }
    if (m->cq) {
        m->verbs->destroy_cq(m->cq);
    }
    if (m->channel) {
        m->verbs->destroy_comp_channel(m->channel);
    }
    if (m->mr) {
        m->verbs->dereg_mr(m->mr);
    }
    free_cacheline(m->buf);
    free(m);
}

static const struct ipoib_mad_class mad_qp_class = {
    .name = "qp",
    .destroy = mad_qp_destroy,
    .send = mad_qp_send,
    .update = mad_qp_update,
    .reset = mad_qp_reset,
    .run = mad_qp_run,
    .wait = mad_qp_wait,
};

/* Makes the verbs objects of 'm'; on failure returns a positive errno value
 * and leaves those that exist to mad_qp_destroy(). */
static int
mad_qp_open(struct mad_qp *m)
{
    size_t size = MAD_N_RECV * MAD_RECV_LEN + MAD_N_SEND * IB_MAD_LEN;
    struct ipoib_ud_params params;
    struct ibv_qp_init_attr init;
    int error;

    m->buf = xzalloc_cacheline(size);
    m->mr = m->verbs->reg_mr(m->pd, m->buf, size, IBV_ACCESS_LOCAL_WRITE);
    if (!m->mr) {
        return errno;
    }
    m->channel = m->verbs->create_comp_channel(m->ctx);
    if (!m->channel) {
        return errno;
    }
    m->cq = m->verbs->create_cq(m->ctx, MAD_N_CQE, NULL, m->channel, 0);
    if (!m->cq) {
        return errno;
    }
    ibv_req_notify_cq(m->cq, 0);

    memset(&init, 0, sizeof init);
    init.send_cq = init.recv_cq = m->cq;
    init.qp_type = IBV_QPT_UD;
    init.cap.max_send_wr = MAD_N_SEND;
    init.cap.max_recv_wr = MAD_N_RECV;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    m->qp = m->verbs->create_qp(m->pd, &init, false);
    if (!m->qp) {
        return errno;
    }

    m->up.qpn = m->qp->qp_num;
    m->pkey_index = mad_find_pkey(m);
    params = mad_ud_params(m);
    error = ipoib_verbs_ud_start(m->verbs, m->qp, &params);
    return error ? error : mad_fill(m);
}

struct ipoib_mad_transport *
ipoib_mad_qp_create(const struct ipoib_verbs *verbs, struct ibv_context *ctx,
                    struct ibv_pd *pd, uint8_t port, ipoib_mad_recv_cb *recv,
                    void *aux)
{
    struct mad_qp *m = xzalloc(sizeof *m);
    int error;

    m->up.class = &mad_qp_class;
    m->up.recv = recv;
    m->up.aux = aux;
    m->verbs = verbs;
    m->ctx = ctx;
    m->pd = pd;
    m->port = port;
    error = mad_qp_open(m);
    if (error) {
        mad_qp_destroy(&m->up);
        errno = error;
        return NULL;
    }
    return &m->up;
}
