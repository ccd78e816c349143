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

#ifndef IPOIB_RING_H
#define IPOIB_RING_H 1

/* Queues: a receive queue is a completion queue (CQ), a shared receive queue
 * (SRQ) and a base queue pair; the QPs of its hosts share CQ and SRQ.  A
 * transmit queue is a QP of its own with its CQ and send slots.  The control
 * thread has a send queue of its own, from which it sends on any QP.
 *
 * Creation and destruction: under the HCA's mutex, by any thread, while no
 * PMD uses the queue.  What data path functions may touch is said there. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-host.h"
#include "ipoib-mcast.h"
#include "ipoib-msgq.h"
#include "ipoib-peer.h"
#include "ipoib-mtu.h"
#include "ipoib-neigh.h"
#include "ipoib-pool.h"
#include "ipoib-stats.h"
#include "ipoib-verbs.h"
#include "ovs-atomic.h"
#include "ovs-thread.h"
#include "packets.h"

/* What all queues of a partition share and the data path reads: written by
 * the control thread, seldom. */
struct ipoib_shared {
    const struct ipoib_verbs *verbs;
    struct ipoib_neigh_table *neighs;
    struct ipoib_host_table *hosts;
    struct ipoib_mcast *mcast;
    struct ipoib_waker *waker;  /* Of the control thread. */
    struct eth_addr mac;        /* The port's own. */
    uint16_t pkey;              /* Host byte order. */
    uint8_t scope;              /* Of the broadcast group. */
    struct ipoib_table *own_qpns; /* All QPNs of this port, to drop our own
                                   * multicast. */
    struct ib_gid broadcast;    /* MGID of the broadcast group. */
    atomic_uint32_t lid;        /* Own base LID. */
    atomic_uint32_t lid_mask;   /* 0xffff << LMC. */
    struct ib_gid gid;          /* Own GID (its change is not atomic: a packet
                                 * in that moment counts as a stranger's). */
    atomic_uint32_t qkey;
    atomic_uint32_t mtu;        /* Largest IP packet to send. */
    atomic_uint32_t group_mtu;  /* Largest IP packet that a neighbour may send:
                                 * MTU of the broadcast group - 4. */
    atomic_uint32_t eth_mtu;    /* Largest IP packet that goes to the bridge,
                                 * 0: any. */
    atomic_bool clamp_mss;      /* TCP's MSS option is kept to the MTUs. */
    atomic_bool tx_csum;        /* The device computes checksums. */
    atomic_bool rx_csum;        /* It checks them. */
    atomic_uint32_t tx_tso;     /* It cuts TCP into segments, so many bytes at
                                 * a time; 0: it does not. */
    atomic_uint32_t now;        /* time_now() as the control thread has told
                                 * it, since to ask for it in each burst is
                                 * slow.  While that thread is kept from
                                 * running, this stands still. */
    atomic_bool up;             /* Broadcast group joined, port up. */
    atomic_bool standby;        /* Another gateway is the active one. */
    const struct ipoib_share *share; /* With other gateways; or NULL. */
};

/* Type of the packets that the watchdog sends to our own queue pairs. */
#define IPOIB_TYPE_PROBE 0x88b5 /* Local experimental EtherType 1. */

struct ipoib_rxq {
    /* Data path, receiving thread only. */
    struct ipoib_shared *shared;
    struct ibv_cq *cq;
    struct ibv_srq *srq;        /* NULL: the device has none, base QP only. */
    struct ibv_qp *base_qp;
    struct ipoib_pool *pool;
    unsigned int id;            /* Queue number. */
    unsigned int n_desc;        /* Receives posted when full. */
    unsigned int n_posted;
    struct ipoib_msgq *to_control;
    struct ipoib_msgq *from_control; /* Return ring: frames to deliver. */
    struct ipoib_rx_stats stats;
    struct ipoib_rxq_private *priv; /* ipoib-ring-private.h. */
    atomic_bool suspect;        /* See ipoib_rxq_suspect_loss(). */
    /* Counts the times that the CQ was found empty, so that the control
     * thread knows that a QP's last completions were taken: that is sure when
     * it has gone up by 2, since the first of them may belong to a poll that
     * had begun before. */
    atomic_uint64_t drained;
    struct {                    /* Control thread: a second ago. */
        uint64_t seen, drained;
        unsigned int idle;      /* Seconds without a packet. */
        unsigned int missed;    /* Probes that did not come. */
        unsigned int n_restarts; /* In a row. */
        uint64_t total;         /* 'seen', and probes of hosts' QPs. */
        uint64_t ring_full;     /* Of those, not told the control thread. */
        bool alive;             /* 'total' went up in the last second, and
                                 * 'ring_full' did not. */
    } watch;
};

struct ipoib_rxq_params {
    struct ibv_pd *pd;
    struct ipoib_pool *pool;
    struct ibv_cq *send_cq;     /* For what the control thread sends from the
                                 * base QP: ipoib_ctlq_cq(). */
    struct ipoib_ud_params ud;  /* Port, P_Key index and Q_Key. */
    unsigned int id, n_desc;
    int numa_id;                /* Of the device; or negative. */
    bool use_srq;
};
/* 0 or a positive errno value, and then '*rxqp' is NULL. */
int ipoib_rxq_create(struct ipoib_shared *, const struct ipoib_rxq_params *,
                     struct ipoib_rxq **rxqp);
/* Drops the packets that are on their way between 'rxq' and the control
 * thread, or wait for the bridge, as part of taking the queue down. */
void ipoib_rxq_drop(struct ipoib_rxq *);
/* The QPs of hosts must be gone.  All buffers go back to the pool. */
void ipoib_rxq_destroy(struct ipoib_rxq *);
/* Bytes of memory, without the device's and the buffers. */
size_t ipoib_rxq_memory(const struct ipoib_rxq *);
/* Posts receives until 'n_desc' are there; 0 or errno.  Receiving thread, or
 * nobody receives. */
int ipoib_rxq_refill(struct ipoib_rxq *);

/* A QP of 'rxq' was reset while packets came: completions may be gone that
 * were in the CQ, and with them their buffers, since a device takes a QP's
 * completions out of the CQ then.  The receiving thread finds these buffers,
 * when all that were posted by now must have come back, and posts them
 * again.  Any thread. */
void ipoib_rxq_suspect_loss(struct ipoib_rxq *);

/* A UD QP of a host in 'rxq': receives through its CQ and SRQ, sends through
 * 'send_cq' with at most IPOIB_HOST_QP_SENDS outstanding.  In RTS.  NULL and
 * errno on failure. */
#define IPOIB_HOST_QP_SENDS 16
struct ibv_qp *ipoib_rxq_create_host_qp(struct ipoib_rxq *,
                                        struct ibv_cq *send_cq,
                                        const struct ipoib_ud_params *);

/* A transmit queue works, or it stands still: because of an error, that the
 * data path sees first, or since the control thread stopped it to change its
 * QP.  Packets are dropped meanwhile (drop_post). */
enum ipoib_txq_state {
    IPOIB_TXQ_RUNNING,
    IPOIB_TXQ_ERROR,            /* Set by the data path: to be restarted. */
    IPOIB_TXQ_STOPPING,         /* Control thread: not another post, but one
                                 * may be under way. */
    IPOIB_TXQ_STOPPED,          /* As _ERROR, but wanted. */
    IPOIB_TXQ_RESTARTED,        /* Control thread: the QP was reset, its
                                 * completions will not come. */
};

/* Tables of a transmit queue.  They take no memory until they are used. */
struct ipoib_txq_tables {
    struct ipoib_limiter limiter;
    uint32_t lost[64];          /* The second in which the control thread was
                                 * told of an unknown destination, by hash of
                                 * its MAC. */
    /* Source MACs of late, each with the second in which the control thread
     * was told of it. */
    struct { uint64_t mac; uint32_t told; } sources[256];
    struct ipoib_mtu_limiter errors;
};

struct ipoib_txq {
    /* Data path; one thread at a time ('lock' where OVS shares the queue). */
    struct ipoib_shared *shared;
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    struct ipoib_txq_slots *slots; /* Private to ipoib-ring.c, ipoib-tx.c. */
    unsigned int id;
    unsigned int n_desc;
    bool device_csum;           /* Of the packets that are being sent, the
                                 * device is to compute the checksums. */
    uint32_t tso_lkey;          /* Of the memory of 'tso'; 0: it is copied. */
    const struct ipoib_segments *tso; /* NULL, or the one packet that is being
                                       * sent, which the device is to cut. */
    struct ipoib_msgq *to_control;
    struct ipoib_tx_stats stats;
    struct ipoib_txq_tables *tables;
    atomic_uint32_t state;      /* enum ipoib_txq_state. */
    /* Control thread. */
    struct {
        bool failed;            /* Stopped because of an error. */
        long long int next_restart; /* Not before: the last try failed. */
        uint64_t packets, full; /* Counters, a second ago. */
        unsigned int stalled;   /* Seconds that the queue has stood still. */
        bool release;           /* Stopped since it is idle and holds packets,
                                 * for no other reason. */
    } watch;
    struct ovs_spin lock;
};

struct ipoib_txq_params {
    struct ibv_pd *pd;
    struct ipoib_ud_params ud;
    unsigned int id, n_desc;
    size_t mtu;                 /* IB MTU in bytes: size of a slot. */
    int numa_id;                /* Where to have the slots; or negative. */
    bool tso;                   /* The QP is to take IBV_WR_TSO, if the device
                                 * makes such ones. */
};
int ipoib_txq_create(struct ipoib_shared *, const struct ipoib_txq_params *,
                     struct ipoib_txq **txqp);
/* Drops the packets that are on their way to the control thread, as part of
 * taking the queue down. */
void ipoib_txq_drop(struct ipoib_txq *);
void ipoib_txq_destroy(struct ipoib_txq *);
/* Bytes of memory, without the device's. */
size_t ipoib_txq_memory(const struct ipoib_txq *);
/* Any thread: true if packets are, or were a moment ago, held until they are
 * sent. */
bool ipoib_txq_holds(const struct ipoib_txq *);

/* The control thread's part when a send queue has failed (state _ERROR; a UD
 * QP goes to SQE with its first failed send, and all other sends fail) or its
 * P_Key index or Q_Key changes.
 *
 * ipoib_txq_stop() asks the data path to leave a queue alone that runs;
 * ipoib_txq_is_still() tells whether it does: at once in state _ERROR, else
 * after an RCU grace period, so ask again.  Then ipoib_txq_restart() takes the
 * QP through RESET to RTS; the packets that were in it are gone. */
void ipoib_txq_stop(struct ipoib_txq *);
bool ipoib_txq_is_still(struct ipoib_txq *);
/* Or a queue that was stopped while it ran, and is still, just runs on. */
void ipoib_txq_continue(struct ipoib_txq *);
int ipoib_txq_restart(struct ipoib_txq *, const struct ipoib_ud_params *);

/* A send queue of the control thread: registered slots and a CQ that the QPs
 * of hosts name as their send CQ.  Control thread only. */
struct ipoib_ctlq;
struct ipoib_ctlq *ipoib_ctlq_create(const struct ipoib_verbs *,
                                     struct ibv_context *, struct ibv_pd *,
                                     unsigned int n_slots, size_t mtu);
/* The QPs that send through it must be gone. */
void ipoib_ctlq_destroy(struct ipoib_ctlq *);
struct ibv_cq *ipoib_ctlq_cq(struct ipoib_ctlq *);
/* Sends the data of 'packet' (from the IPoIB header on; copied, still the
 * caller's) from 'qp'.  0, or EAGAIN if no slot is free or the QP's queue is
 * full, EMSGSIZE, or what the device says. */
int ipoib_ctlq_send(struct ipoib_ctlq *, struct ibv_qp *qp,
                    const struct dp_packet *packet, struct ibv_ah *ah,
                    uint32_t qpn, uint32_t qkey);
/* 'qpn' was destroyed or reset: its completions will not come. */
void ipoib_ctlq_forget(struct ipoib_ctlq *, uint32_t qpn);
/* The number of a QP with a send from before 'when' (time_msec()) that has not
 * completed, or 0. */
uint32_t ipoib_ctlq_stalled(const struct ipoib_ctlq *, long long int when);
/* Takes completions.  Calls 'error' for each that failed. */
void ipoib_ctlq_run(struct ipoib_ctlq *,
                    void (*error)(void *aux, uint32_t qpn,
                                  enum ibv_wc_status), void *aux);

#endif /* ipoib-ring.h */
