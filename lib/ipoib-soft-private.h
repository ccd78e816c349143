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

#ifndef IPOIB_SOFT_PRIVATE_H
#define IPOIB_SOFT_PRIVATE_H 1

/* The software HCA: what its files share.  Nobody else includes this.
 *
 *   ipoib-soft.c          devices and their names, the port, the table
 *   ipoib-soft-events.c   asynchronous events
 *   ipoib-soft-cq.c       completion queues and channels
 *   ipoib-soft-srq.c      receive rings: a QP's own and shared ones
 *   ipoib-soft-mr.c       protection domains and memory regions
 *   ipoib-soft-qp.c       queue pairs: life and states
 *   ipoib-soft-send.c     send work requests
 *   ipoib-soft-recv.c     from a packet to a receive's completion
 *   ipoib-soft-csum.c     checksums that the device computes
 *   ipoib-soft-tso.c      TCP that the device cuts into segments
 *   ipoib-soft-ah.c       address handles
 *   ipoib-soft-mcast.c    attachments to multicast groups
 *   ipoib-soft-link.c     the link over a socket to the fabric
 *   ipoib-soft-loop.c     the link inside the process, with its subnet
 *   ipoib-soft-model.c    neighbours that are made up, for measurements
 *   ipoib-soft-fault.c    faults of queue pairs, for tests
 *
 * Locks, outer to inner: an HCA's 'mutex' (the control path); a QP's
 * 'sq_mutex'; a QP's 'mutex'; an SRQ's or a CQ's 'mutex'; a channel's or the
 * event queue's mutex.  The holder of a QP's 'mutex' never takes the
 * 'sq_mutex' of any QP, so that a sender may deliver to any QP of the same
 * process.  Look-ups of QPs, regions, groups and port data are under RCU. */

#include <infiniband/verbs.h>
#include <sys/uio.h>
#include "cmap.h"
#include "ipoib-verbs.h"
#include "ipoib-wire.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "util.h"

struct ds;

#define SOFT_MAX_SGE    8
#define SOFT_MAX_INLINE 1024
#define SOFT_MAX_QP     131072
#define SOFT_MAX_WR     32768
#define SOFT_MAX_CQE    (1 << 22)
#define SOFT_MAX_SRQ    65536
#define SOFT_MAX_MR     (1 << 20)
#define SOFT_MAX_GROUPS 65536
#define SOFT_MAX_PAYLOAD 4096
#define SOFT_MAX_TSO    (1 << 18)

/* Counters of an HCA, for what is seldom; packets are counted in each QP. */
#define SOFT_COUNTERS                                                       \
    SOFT_COUNTER(TX_LINK_DOWN, "tx_port_down")                              \
    SOFT_COUNTER(TX_FULL, "tx_socket_full")                                 \
    SOFT_COUNTER(TX_ERROR, "tx_socket_error")                               \
    SOFT_COUNTER(TX_NO_PKEY, "tx_invalid_pkey")                             \
    SOFT_COUNTER(TX_NO_PORT, "tx_no_such_lid")                              \
    SOFT_COUNTER(RX_BAD_MESSAGE, "rx_bad_message")                          \
    SOFT_COUNTER(RX_UNKNOWN_TYPE, "rx_unknown_type")                        \
    SOFT_COUNTER(RX_MALFORMED, "rx_malformed")                              \
    SOFT_COUNTER(RX_PORT_DOWN, "rx_port_down")                              \
    SOFT_COUNTER(RX_WRONG_LID, "rx_wrong_lid")                              \
    SOFT_COUNTER(RX_WRONG_GID, "rx_wrong_gid")                              \
    SOFT_COUNTER(RX_NO_GRH, "rx_multicast_without_grh")                     \
    SOFT_COUNTER(RX_NO_GROUP, "rx_no_group")                                \
    SOFT_COUNTER(RX_NO_QP, "rx_no_qp")                                      \
    SOFT_COUNTER(RX_QP_STATE, "rx_qp_state")                                \
    SOFT_COUNTER(RX_BAD_PKEY, "rx_bad_pkey")                                \
    SOFT_COUNTER(RX_BAD_QKEY, "rx_bad_qkey")                                \
    SOFT_COUNTER(RX_NO_RECEIVE, "rx_no_receive")                            \
    SOFT_COUNTER(RX_TOO_LONG, "rx_too_long")                                \
    SOFT_COUNTER(RX_PROT, "rx_protection_error")                            \
    SOFT_COUNTER(CQ_OVERFLOW, "cq_overflow")                                \
    SOFT_COUNTER(ATTACHED, "fabric_attached")                               \
    SOFT_COUNTER(LOST, "fabric_lost")                                       \
    SOFT_COUNTER(SA_ANSWERED, "loop_sa_answered")                           \
    SOFT_COUNTER(SA_IGNORED, "loop_sa_ignored")                             \
    SOFT_COUNTER(SINK_BAD, "sink_bad_packet")                               \
    SOFT_COUNTER(SOURCE_PACKETS, "source_packets")
enum soft_counter {
#define SOFT_COUNTER(ENUM, NAME) SOFT_C_##ENUM,
    SOFT_COUNTERS
#undef SOFT_COUNTER
    SOFT_N_COUNTERS
};

/* What the port's options and the fabric say of the port.  Replaced as a
 * whole, read under RCU. */
struct soft_port {
    enum ibv_port_state state;
    uint16_t lid;
    uint16_t sm_lid;
    uint8_t lmc;
    uint8_t sm_sl;
    uint8_t subnet_timeout;
    uint8_t active_mtu;         /* As enum ibv_mtu. */
    uint8_t active_width;
    uint8_t active_speed;
    bool grh_required;
    struct ib_gid gid;
    uint16_t pkeys[IB_SOFT_MAX_PKEYS]; /* Host byte order, 0: no entry. */
};

/* Pending and unacknowledged asynchronous events of one QP, CQ or SRQ. */
struct soft_event_count {
    unsigned int n_unacked;     /* Under 'events.mutex' of the HCA. */
};

struct soft_events {
    struct ovs_mutex mutex;
    pthread_cond_t cond;        /* Something was acknowledged. */
    struct ovs_list list;       /* struct soft_event. */
};

struct soft_packet;
struct soft_tx;
struct soft_hca;

/* A link: how packets leave the HCA.  The way in is soft_deliver(). */
struct soft_link_class {
    /* Starts the link of 'hca', whose name is parsed already. */
    int (*start)(struct soft_hca *hca, char **errp);
    /* Stops it; afterwards no thread of the link touches 'hca'. */
    void (*stop)(struct soft_hca *hca);
    /* Sends the 'n' packets of a batch, which are for other ports. */
    void (*send)(struct soft_hca *hca, const struct soft_port *,
                 struct soft_packet *const packets[], size_t n);
    /* Ends the connection for good.  May be NULL. */
    void (*fail)(struct soft_hca *hca);
};
extern const struct soft_link_class soft_link_socket;
extern const struct soft_link_class soft_link_loop;

/* Neighbours that are made up (ipoib-soft-model.c). */
struct soft_model_params {
    bool source, sink;
    bool grh;                   /* Packets have one. */
    unsigned int neighbours;
    unsigned int size;          /* Of IP packets. */
    ovs_be32 src;               /* IP address of neighbour 0. */
    ovs_be32 dst;               /* If no address was announced. */
};

/* Checksums: what the device says that it can, and what it does. */
enum soft_csum {
    SOFT_CSUM_NONE,             /* It says nothing. */
    SOFT_CSUM_GOOD,             /* It can, and does. */
    SOFT_CSUM_LIES_TX,          /* It sends packets unchanged. */
    SOFT_CSUM_LIES_RX,          /* It finds all packets good. */
};

/* Segmentation, likewise. */
enum soft_tso_kind {
    SOFT_TSO_NONE,
    SOFT_TSO_GOOD,
    SOFT_TSO_LIES,              /* The sequence number stays. */
};

struct soft_name {
    enum soft_link_type { SOFT_UNIX, SOFT_UDP, SOFT_LOOP } type;
    char *where;                /* PATH, ADDR:PORT, or the subnet's name. */
    uint64_t guid;              /* Port GUID, 0 if not given. */
    unsigned int n_pkeys;       /* P_Keys of a loop, 0 if not given. */
    uint16_t pkeys[IB_SOFT_MAX_PKEYS];
    struct soft_model_params model; /* Of a loop. */
    enum soft_csum csum;
    enum soft_tso_kind tso;
};
char *soft_name_parse(const char *name, struct soft_name *);
void soft_name_destroy(struct soft_name *);

struct soft_hca {
    struct ibv_context ctx;     /* First. */
    struct ibv_device device;
    char *full_name;            /* 'device.name' has room for 63 bytes. */
    struct soft_name name;
    uint64_t port_guid;

    struct ovs_mutex mutex;     /* Control path. */
    OVSRCU_TYPE(struct soft_port *) port; /* Written under 'mutex'. */
    struct soft_events events;

    struct cmap qps;            /* struct soft_qp by QPN; 'mutex' to write. */
    uint32_t next_qpn;
    struct cmap groups;         /* struct soft_group by MGID; likewise. */
    OVSRCU_TYPE(struct soft_mr_table *) mrs;
    uint32_t mr_hint;           /* Where to look for a free index. */
    uint8_t mr_generation;

    /* All objects, so that closing frees what the user left. */
    struct ovs_list pd_list, mr_list, channel_list, cq_list, srq_list;
    struct ovs_list qp_list, ah_list;
    int n_qps, n_cqs, n_srqs, n_mrs, n_groups;
    bool closing;               /* Wait for no acknowledgement. */
    struct ovs_list fault_node; /* In ipoib-soft-fault.c's list. */

    const struct soft_link_class *link;
    struct soft_socket *socket; /* SOFT_UNIX, SOFT_UDP. */
    struct soft_subnet *subnet; /* SOFT_LOOP. */
    struct soft_model *model;   /* SOFT_LOOP with source or sink, or NULL. */
    atomic_uint64_t counters[SOFT_N_COUNTERS];
    /* Packets of QPs that are gone. */
    uint64_t old_tx, old_rx, old_sink; /* Under 'mutex'. */
};

static inline struct soft_hca *
soft_hca_cast(struct ibv_context *ctx)
{
    return CONTAINER_OF(ctx, struct soft_hca, ctx);
}

static inline void
soft_count(struct soft_hca *hca, enum soft_counter counter, uint64_t n)
{
    uint64_t orig;

    atomic_add_relaxed(&hca->counters[counter], n, &orig);
}

static inline const struct soft_port *
soft_port_get(const struct soft_hca *hca)
{
    return ovsrcu_get(struct soft_port *, &hca->port);
}

/* Changes the port.  'port' is copied.  Raises the events for what differs,
 * and IBV_EVENT_CLIENT_REREGISTER if 'reregister'. */
void soft_port_set(struct soft_hca *hca, const struct soft_port *port,
                   bool reregister) OVS_EXCLUDED(hca->mutex);

/* Events. */
void soft_events_init(struct soft_hca *);
void soft_events_destroy(struct soft_hca *);
void soft_event_raise(struct soft_hca *, enum ibv_event_type, void *element);
void soft_event_forget(struct soft_hca *, void *element,
                       struct soft_event_count *);
int soft_get_async_event(struct ibv_context *, struct ibv_async_event *);
void soft_ack_async_event(struct ibv_async_event *);

/* Protection domains, memory regions. */
struct soft_pd {
    struct ibv_pd pd;           /* First. */
    struct ovs_list node;
    int n_refs;                 /* Under the HCA's 'mutex'. */
};

struct soft_mr {
    struct ibv_mr mr;           /* First. */
    struct ovs_list node;
    uintptr_t start, length;
    int access;
};

struct soft_mr_table {
    size_t n;
    OVSRCU_TYPE(struct soft_mr *) mrs[];
};

struct ibv_pd *soft_alloc_pd(struct ibv_context *);
int soft_dealloc_pd(struct ibv_pd *);
struct ibv_mr *soft_reg_mr(struct ibv_pd *, void *addr, size_t length,
                           int access);
int soft_dereg_mr(struct ibv_mr *);
void soft_mr_free_table(struct soft_hca *);

static inline void
soft_pd_ref(struct ibv_pd *pd)
{
    CONTAINER_OF(pd, struct soft_pd, pd)->n_refs++;
}

static inline void
soft_pd_unref(struct ibv_pd *pd)
{
    CONTAINER_OF(pd, struct soft_pd, pd)->n_refs--;
}

/* True if 'sge' lies within a region of 'pd' that has all of 'access'. */
static inline bool
soft_mr_check(struct soft_hca *hca, const struct ibv_pd *pd,
              const struct ibv_sge *sge, int access)
{
    const struct soft_mr_table *t = ovsrcu_get(struct soft_mr_table *,
                                               &hca->mrs);
    uint32_t idx = sge->lkey >> 8;
    const struct soft_mr *mr;

    if (!t || idx >= t->n) {
        return false;
    }
    mr = ovsrcu_get(struct soft_mr *, &t->mrs[idx]);
    return (mr && mr->mr.lkey == sge->lkey && mr->mr.pd == pd
            && sge->addr - mr->start <= mr->length
            && sge->length <= mr->length - (sge->addr - mr->start)
            && (mr->access & access) == access);
}

/* Completion queues. */
struct soft_channel {
    struct ibv_comp_channel channel; /* First. */
    struct ovs_list node;
    struct ovs_mutex mutex;
    pthread_cond_t cond;        /* Something was acknowledged. */
    struct ovs_list pending;    /* CQs with 'n_pending' above 0. */
};

struct soft_cqe {
    struct ibv_wc wc;
    struct soft_qp *qp;
    uint32_t sq_end;            /* Send queue's index behind this request. */
    bool is_send;
    bool solicited;
};

enum soft_cq_arm { SOFT_CQ_UNARMED, SOFT_CQ_SOLICITED, SOFT_CQ_ANY };

struct soft_cq {
    struct ibv_cq cq;           /* First. */
    struct ovs_list node;
    int n_refs;                 /* QPs; under the HCA's 'mutex'. */
    struct soft_event_count events;

    /* Under the channel's mutex. */
    struct ovs_list pending_node;
    unsigned int n_pending, n_unacked;

    PADDED_MEMBERS(CACHE_LINE_SIZE,
        struct ovs_mutex mutex;
        struct soft_cqe *ring;
        uint32_t mask;
        atomic_uint32_t prod;   /* Written under 'mutex'. */
        atomic_uint32_t cons;   /* Likewise. */
        enum soft_cq_arm armed;
        bool overflowed;
    );

    /* Of a source: the QPs that receive here, and who polls' own state. */
    OVSRCU_TYPE(struct soft_group_qps *) source_qps;
    uint32_t source_qp, source_next, source_polls, announced;
};

struct ibv_comp_channel *soft_create_comp_channel(struct ibv_context *);
int soft_destroy_comp_channel(struct ibv_comp_channel *);
int soft_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
void soft_ack_cq_events(struct ibv_cq *, unsigned int n);
struct ibv_cq *soft_create_cq(struct ibv_context *, int cqe, void *,
                              struct ibv_comp_channel *, int comp_vector);
int soft_destroy_cq(struct ibv_cq *);
int soft_poll_cq(struct ibv_cq *, int n, struct ibv_wc *);
int soft_req_notify_cq(struct ibv_cq *, int solicited_only);
void soft_cq_push(struct soft_cq *, const struct soft_cqe *, size_t n);
void soft_cq_sweep(struct soft_cq *, const struct soft_qp *);

/* Receive rings: of a QP, or of an SRQ. */
struct soft_rwqe {
    uint64_t wr_id;
    int num_sge;
    struct ibv_sge sge[];       /* The ring's 'max_sge'. */
};

struct soft_rq {
    uint8_t *ring;
    size_t stride;
    uint32_t max_wr, max_sge;
    uint32_t head, tail;        /* Indices modulo 'max_wr'; 'n' filled. */
    uint32_t n;
};

struct soft_srq {
    struct ibv_srq srq;         /* First. */
    struct ovs_list node;
    int n_refs;                 /* QPs; under the HCA's 'mutex'. */
    struct soft_event_count events;

    PADDED_MEMBERS(CACHE_LINE_SIZE,
        struct ovs_mutex mutex;
        struct soft_rq rq;
        uint32_t limit;         /* 0: not armed. */
    );
};

void soft_rq_init(struct soft_rq *, uint32_t max_wr, uint32_t max_sge);
void soft_rq_destroy(struct soft_rq *);
int soft_rq_post(struct soft_rq *, struct ibv_recv_wr *,
                 struct ibv_recv_wr **bad_wr);

static inline struct soft_rwqe *
soft_rq_at(const struct soft_rq *rq, uint32_t idx)
{
    return ALIGNED_CAST(struct soft_rwqe *, rq->ring + idx * rq->stride);
}

/* The oldest receive; there must be one. */
static inline struct soft_rwqe *
soft_rq_peek(const struct soft_rq *rq)
{
    return soft_rq_at(rq, rq->tail);
}

static inline void
soft_rq_pop(struct soft_rq *rq)
{
    rq->tail = rq->tail + 1 == rq->max_wr ? 0 : rq->tail + 1;
    rq->n--;
}

struct ibv_srq *soft_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
int soft_modify_srq(struct ibv_srq *, struct ibv_srq_attr *, int mask);
int soft_query_srq(struct ibv_srq *, struct ibv_srq_attr *);
int soft_destroy_srq(struct ibv_srq *);
int soft_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *,
                       struct ibv_recv_wr **bad_wr);

/* Queue pairs. */

enum soft_fault {
    SOFT_FAULT_NONE,
    SOFT_FAULT_SQE,             /* The next send fails. */
    SOFT_FAULT_ERR,             /* ERR, with IBV_EVENT_QP_FATAL. */
    SOFT_FAULT_STALL_SEND,      /* Sends do not complete until it ends. */
    SOFT_FAULT_STALL_RECV,      /* Nothing is received. */
};

struct soft_qp {
    struct ibv_qp qp;           /* First. */
    struct ovs_list node;
    struct cmap_node cmap_node;
    struct soft_event_count events;
    struct ibv_qp_cap cap;
    bool sig_all, block_self;
    bool tso;                   /* Takes IBV_WR_TSO. */
    int n_attached;             /* Under the HCA's 'mutex'. */
    atomic_uint32_t model_ip;   /* What it announced, network byte order. */
    atomic_int fault;           /* enum soft_fault, until it is reset. */

    /* Written under both mutexes or, by a receive error, 'mutex' alone. */
    atomic_int state;           /* enum ibv_qp_state. */
    /* Written under both mutexes, read under either. */
    uint32_t qkey;
    uint16_t pkey_index;

    PADDED_MEMBERS(CACHE_LINE_SIZE,
        struct ovs_mutex sq_mutex;
        uint32_t sq_head;       /* Requests posted so far. */
        uint32_t psn;
        uint64_t n_tx;
        uint64_t n_sink;        /* Of them, to made-up neighbours. */
        uint8_t *csum_space;    /* Payloads that were changed; or NULL. */
        struct soft_cqe *stalled; /* Completions of SOFT_FAULT_STALL_SEND. */
        size_t n_stalled;
        size_t allocated_stalled;
    );
    /* Requests whose completion, or that of a later one, was polled. */
    PADDED_MEMBERS(CACHE_LINE_SIZE,
        atomic_uint32_t sq_tail;
    );
    PADDED_MEMBERS(CACHE_LINE_SIZE,
        struct ovs_mutex mutex;
        struct soft_rq rq;      /* Unless there is an SRQ. */
        struct ovs_list deferred; /* Requests posted in SQD. */
        uint64_t n_rx;
        bool last_wqe;          /* IBV_EVENT_QP_LAST_WQE_REACHED is raised. */
    );
};

static inline struct soft_qp *
soft_qp_cast(struct ibv_qp *qp)
{
    return CONTAINER_OF(qp, struct soft_qp, qp);
}

static inline enum ibv_qp_state
soft_qp_state(struct soft_qp *qp)
{
    int state;

    atomic_read_relaxed(&qp->state, &state);
    return state;
}

static inline struct soft_cq *
soft_cq_cast(struct ibv_cq *cq)
{
    return CONTAINER_OF(cq, struct soft_cq, cq);
}

static inline struct soft_srq *
soft_srq_cast(struct ibv_srq *srq)
{
    return CONTAINER_OF(srq, struct soft_srq, srq);
}

struct ibv_qp *soft_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *,
                              bool block_self_mcast);
uint32_t soft_max_tso(struct ibv_context *);
struct ibv_qp *soft_create_tso_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
int soft_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask);
int soft_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask,
                  struct ibv_qp_init_attr *);
int soft_destroy_qp(struct ibv_qp *);
struct soft_qp *soft_qp_find(struct soft_hca *, uint32_t qpn);
/* Takes 'qp' to ERR and flushes its receives. */
void soft_qp_error(struct soft_qp *qp) OVS_REQUIRES(qp->mutex);

/* Address handles. */
struct soft_ah {
    struct ibv_ah ah;           /* First. */
    struct ovs_list node;
    struct ibv_ah_attr attr;
    struct ib_grh grh;          /* All but SGID and length. */
};

struct ibv_ah *soft_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
int soft_destroy_ah(struct ibv_ah *);

/* Multicast. */
struct soft_group_qps {
    size_t n;
    struct soft_qp *qps[];
};

struct soft_group {
    struct cmap_node node;
    struct ib_gid mgid;
    OVSRCU_TYPE(struct soft_group_qps *) qps;
};

int soft_attach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t lid);
int soft_detach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t lid);
void soft_mcast_detach_all(struct soft_hca *hca, struct soft_qp *)
    OVS_REQUIRES(hca->mutex);
/* The QPs attached to 'mgid', or NULL. */
const struct soft_group_qps *soft_mcast_find(const struct soft_hca *,
                                             const struct ib_gid *mgid);

/* Sending. */

/* One packet on its way, its payload still in pieces. */
struct soft_packet {
    struct ib_ud ud;            /* 'payload' is unused. */
    struct soft_qp *sender;     /* NULL if of another port. */
    size_t n_iov;
    struct iovec iov[SOFT_MAX_SGE];
};

/* A request that waits in SQD, with copies of what it points to. */
struct soft_deferred {
    struct ovs_list node;
    struct ibv_send_wr wr;
    struct ibv_sge sge[SOFT_MAX_SGE];
    uint32_t sq_end;
    uint8_t tso_header[IPOIB_VERBS_TSO_HEADER];
    uint8_t data[];             /* If inline. */
};

int soft_post_send(struct ibv_qp *, struct ibv_send_wr *,
                   struct ibv_send_wr **bad_wr);
/* Sends what was posted while 'qp' was in SQD. */
void soft_send_deferred(struct soft_qp *qp) OVS_REQUIRES(qp->sq_mutex);
/* Completes what 'qp' has sent under SOFT_FAULT_STALL_SEND. */
void soft_send_unstall(struct soft_qp *qp) OVS_REQUIRES(qp->sq_mutex);

/* Receiving. */
int soft_post_recv(struct ibv_qp *, struct ibv_recv_wr *,
                   struct ibv_recv_wr **bad_wr);
/* Brings 'packet', addressed to a LID of 'hca' or to a group, to the queue
 * pairs of 'hca' that it is for. */
void soft_deliver(struct soft_hca *, const struct soft_packet *packet);
/* The length of the payload with its padding and of the transport headers,
 * as a GRH says it. */
uint16_t soft_grh_paylen(const struct ib_ud *);

/* Checksums.  'buf' has room for SOFT_MAX_PAYLOAD bytes, for as long as 'p'
 * lasts. */
void soft_csum_complete(struct soft_packet *p, uint8_t *buf);
bool soft_csum_is_good(const struct soft_packet *);
/* Likewise for a payload of 'len' bytes that is in one piece. */
void soft_csum_complete_payload(uint8_t *payload, size_t len);

/* Segments. */
struct soft_tso {
    const struct ibv_send_wr *wr;
    const struct soft_packet *data; /* All that is behind the headers. */
    size_t tcp_ofs;             /* Of TCP, in the headers. */
    size_t ofs;                 /* In 'data': of the next segment. */
    bool v4, lies, complete;
};

/* True if 'wr', an IBV_WR_TSO, can be one. */
bool soft_tso_is_valid(const struct ibv_send_wr *wr);
/* Prepares to cut 'data', for as long as it and 'wr' last.  Returns false if
 * the headers are not those of TCP, or segments would exceed 'mtu' bytes. */
bool soft_tso_init(struct soft_tso *, const struct soft_hca *,
                   const struct ibv_send_wr *wr,
                   const struct soft_packet *data, size_t mtu);
/* Makes the payload of 'p' the next segment, in 'buf'; false at the end. */
bool soft_tso_next(struct soft_tso *, struct soft_packet *p, uint8_t *buf);

/* Faults. */
void soft_fault_add_device(struct soft_hca *);
void soft_fault_remove_device(struct soft_hca *);

static inline int
soft_qp_fault(struct soft_qp *qp)
{
    int fault;

    atomic_read_relaxed(&qp->fault, &fault);
    return fault;
}

/* Neighbours that are made up. */
struct soft_model *soft_model_create(const struct soft_model_params *);
bool soft_model_find_gid(const struct soft_model *, const struct ib_gid *,
                         uint16_t *lid);
bool soft_model_has_lid(uint16_t lid);
void soft_model_sink(struct soft_hca *, const struct soft_port *,
                     const struct soft_packet *);
int soft_model_poll(struct soft_hca *, struct soft_cq *, int max,
                    struct ibv_wc *);
void soft_model_update_cq(struct soft_hca *hca, struct soft_cq *)
    OVS_REQUIRES(hca->mutex);

#endif /* ipoib-soft-private.h */
