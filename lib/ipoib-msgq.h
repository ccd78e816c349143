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

#ifndef IPOIB_MSGQ_H
#define IPOIB_MSGQ_H 1

/* Bounded rings of messages between a thread of the data path and the control
 * thread: one producer, one consumer, no lock.
 *
 * From a queue to the control thread go packets that teach something or that
 * cannot be sent yet; back to a receive queue go packets that rxq_recv is to
 * deliver. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include "ipoib-wire.h"
#include "ovs-atomic.h"
#include "util.h"

struct dp_packet;

enum ipoib_msg_type {
    /* Received.  The packet begins with the IPoIB header. */
    IPOIB_MSG_RX_ARP,           /* ARP or RARP. */
    IPOIB_MSG_RX_ND,
    IPOIB_MSG_RX_IP,            /* IGMP, MLD: a copy is not made, the control
                                 * thread hands it on. */
    IPOIB_MSG_RX_HINT,          /* No packet: a sender that nobody knows, with
                                 * source IP 'src', wrote to 'dqpn'. */
    IPOIB_MSG_RX_MOVED,         /* No packet: the neighbour 'slot' was not
                                 * known by 'slid' and its QPN. */
    IPOIB_MSG_RX_ERROR,         /* To be sent: the ICMP error for a packet that
                                 * was too long.  The rest of the message is
                                 * that packet's, and 'src' its source IP. */
    IPOIB_MSG_RX_PEER,          /* A beacon of another gateway. */
    IPOIB_MSG_RX_PROBE,         /* No packet: the watchdog's came to 'dqpn',
                                 * a host's. */
    /* To be sent.  The packet begins with the Ethernet header. */
    IPOIB_MSG_TX_ARP,           /* ARP or RARP. */
    IPOIB_MSG_TX_ND,
    IPOIB_MSG_TX_PEER,          /* A beacon of another gateway. */
    IPOIB_MSG_TX_BROADCAST,     /* IP, to the broadcast group. */
    IPOIB_MSG_TX_GROUP,         /* IP, to a group that is not joined, or that
                                 * the control thread wants to see. */
    IPOIB_MSG_TX_NO_PATH,       /* IP, to the neighbour 'slot'. */
    IPOIB_MSG_TX_HOST,          /* No packet: host 'mac' sends unicasts. */
    IPOIB_MSG_TX_HINT,          /* No packet: IP address 'src' sends to 'dst'
                                 * at 'mac', which is no neighbour's that we
                                 * know. */
    IPOIB_MSG_TX_ERROR,         /* To be delivered: the ICMP error, an Ethernet
                                 * frame, for a packet that was too long. */
};

struct ipoib_msg {
    enum ipoib_msg_type type;
    struct dp_packet *packet;   /* Owned by the message; or NULL. */
    /* RX: of the completion. */
    uint16_t slid;
    uint16_t rxq;               /* Receive queue. */
    uint32_t sqpn, dqpn;
    bool has_grh;
    bool multicast;             /* DGID was a group's. */
    struct ib_gid sgid;         /* If 'has_grh'. */
    struct ib_gid mgid;         /* TX_GROUP; RX: DGID, if 'has_grh'. */
    struct in6_addr src;        /* RX_HINT, RX_ERROR, TX_HOST, TX_HINT: IPv4
                                 * is v4-mapped. */
    struct in6_addr dst;        /* TX_HOST, TX_HINT: the same. */
    /* TX. */
    uint32_t slot;              /* Neighbour. */
    uint16_t l4_ofs;            /* ND, IGMP, MLD: from the IP header. */
    struct eth_addr mac;        /* TX_HOST, TX_HINT. */
    uint32_t in_port;           /* Port of the bridge that it came from. */
    struct eth_addr src_mac;    /* TX_HINT: of the host. */
};

/* True if 'msg' has a packet that came from the fabric. */
static inline bool
ipoib_msg_is_received(const struct ipoib_msg *msg)
{
    return (msg->packet && msg->type < IPOIB_MSG_TX_ARP
            && msg->type != IPOIB_MSG_RX_ERROR);
}

/* True if 'msg' has a packet that the bridge gave to the port. */
static inline bool
ipoib_msg_is_to_send(const struct ipoib_msg *msg)
{
    return (msg->packet && msg->type >= IPOIB_MSG_TX_ARP
            && msg->type != IPOIB_MSG_TX_ERROR);
}

/* Deletes the packet of 'msg', which will not be handled, and counts it by
 * 'rx' or 'tx' if it is somebody's. */
void ipoib_msg_drop(struct ipoib_msg *, atomic_uint64_t *rx,
                    atomic_uint64_t *tx);

struct ipoib_msgq;

/* A ring for 'n' messages, a power of 2. */
struct ipoib_msgq *ipoib_msgq_create(unsigned int n);
/* Bytes of memory of a queue of 'n'. */
size_t ipoib_msgq_memory(unsigned int n);
/* Also deletes the packets in it. */
void ipoib_msgq_destroy(struct ipoib_msgq *);

/* Producer.  False, and nothing is taken, if the ring is full. */
bool ipoib_msgq_push(struct ipoib_msgq *, const struct ipoib_msg *);
/* Consumer.  False if it is empty. */
bool ipoib_msgq_pop(struct ipoib_msgq *, struct ipoib_msg *);
bool ipoib_msgq_is_empty(const struct ipoib_msgq *);

/* Wakes the control thread: the producers' side of a flag "asleep" and an
 * eventfd, so that a busy control thread costs no system call. */
struct ipoib_waker {
    atomic_bool asleep;
    int fd;                     /* eventfd. */
};
void ipoib_waker_init(struct ipoib_waker *);
void ipoib_waker_destroy(struct ipoib_waker *);
void ipoib_waker_wake(struct ipoib_waker *);   /* Producers. */
/* Control thread: declares itself asleep; it must look at all rings once more
 * before it blocks.  ipoib_waker_wait() makes poll_block() wake up. */
void ipoib_waker_sleep(struct ipoib_waker *);
void ipoib_waker_wait(struct ipoib_waker *);
void ipoib_waker_awake(struct ipoib_waker *);

/* A limit on packets to the control thread for each source, kept by each
 * queue for itself: 256 buckets that sources hash to.  All zeros at first. */
struct ipoib_limiter_bucket {
    uint32_t taken;
    uint32_t last;              /* time_msec(), truncated. */
};
struct ipoib_limiter {
    uint32_t basis;             /* Which sources share a bucket; 0: not chosen
                                 * yet. */
    struct ipoib_limiter_bucket place[65]; /* Where sources are; the last one
                                            * is for beacons of gateways, which
                                            * are not to be lost in anybody's
                                            * flood. */
    struct ipoib_limiter_bucket bucket[256];
};
#define IPOIB_LIMIT_RATE  1000  /* Packets a second and source, */
#define IPOIB_LIMIT_BURST 1000  /* and at once. */
/* The same for all sources of one place, the bridge's port or the SLID that
 * they come from: who makes up sources takes nothing from other places, nor
 * who takes those of others for his own. */
#define IPOIB_LIMIT_PLACE_RATE  32000
#define IPOIB_LIMIT_PLACE_BURST 32000
bool ipoib_limiter_admit(struct ipoib_limiter *, uint32_t source_hash,
                         long long int now);
bool ipoib_limiter_admit_from(struct ipoib_limiter *, uint32_t source_hash,
                              uint32_t place, long long int now);
bool ipoib_limiter_admit_beacon(struct ipoib_limiter *, long long int now);

#endif /* ipoib-msgq.h */
