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

#ifndef IPOIB_VERBS_H
#define IPOIB_VERBS_H 1

/* The verbs, behind a table of functions.
 *
 * One table is libibverbs (ipoib-verbs-hw.c), the other the software HCA
 * (ipoib-soft-*.c).  Objects are libibverbs' own structs on both, and only the
 * control path goes through the table: ibv_post_send(), ibv_post_recv(),
 * ibv_post_srq_recv(), ibv_poll_cq() and ibv_req_notify_cq() are inline in
 * <infiniband/verbs.h>, call through 'ibv_context.ops', and are used directly.
 * Nothing else of libibverbs may be called outside ipoib-verbs-hw.c.
 *
 * Conventions are those of verbs: functions that return a pointer return NULL
 * and set errno; functions that return int return 0 or a positive errno value
 * (the table's functions never return -1).
 *
 * Thread-safety: as verbs.  Every function may be called from any thread, on
 * different objects concurrently. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include "openvswitch/types.h"
#include "openvswitch/util.h"

struct sset;

struct ipoib_verbs {
    const char *name;           /* "hw" or "soft". */

    /* Opens the device 'name' (all of options:device).  On failure returns
     * NULL, sets errno and, if nonnull, '*errp' to a message that names the
     * device (and those that exist); the caller frees it.  A soft device
     * whose fabric does not answer opens all the same, its port Down. */
    struct ibv_context *(*open_device)(const char *name, char **errp);
    int (*close_device)(struct ibv_context *);
    /* Adds the names of the devices that exist to 'names'. */
    void (*list_devices)(struct sset *names);

    int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
    int (*query_port)(struct ibv_context *, uint8_t port,
                      struct ibv_port_attr *);
    int (*query_gid)(struct ibv_context *, uint8_t port, int index,
                     union ibv_gid *);
    /* '*pkey' in network byte order, as ibv_query_pkey(). */
    int (*query_pkey)(struct ibv_context *, uint8_t port, int index,
                      ovs_be16 *pkey);

    /* Asynchronous events: 'ctx->async_fd' polls readable when there is one;
     * get_async_event() returns EAGAIN where there is none (the device is
     * opened with a non-blocking async_fd). */
    int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
    void (*ack_async_event)(struct ibv_async_event *);

    struct ibv_pd *(*alloc_pd)(struct ibv_context *);
    int (*dealloc_pd)(struct ibv_pd *);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *addr, size_t length,
                             int access);
    int (*dereg_mr)(struct ibv_mr *);

    /* 'channel->fd' is non-blocking; get_cq_event() returns EAGAIN. */
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *);
    int (*destroy_comp_channel)(struct ibv_comp_channel *);
    int (*get_cq_event)(struct ibv_comp_channel *, struct ibv_cq **,
                        void **cq_context);
    void (*ack_cq_events)(struct ibv_cq *, unsigned int n);
    struct ibv_cq *(*create_cq)(struct ibv_context *, int cqe,
                                void *cq_context,
                                struct ibv_comp_channel *, int comp_vector);
    int (*destroy_cq)(struct ibv_cq *);

    struct ibv_srq *(*create_srq)(struct ibv_pd *, struct ibv_srq_init_attr *);
    int (*modify_srq)(struct ibv_srq *, struct ibv_srq_attr *, int mask);
    int (*query_srq)(struct ibv_srq *, struct ibv_srq_attr *);
    int (*destroy_srq)(struct ibv_srq *);

    /* 'block_self_mcast' asks for IBV_QP_CREATE_BLOCK_SELF_MCAST_LB; a device
     * that lacks it makes the QP without (the software check drops the
     * copies). */
    struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *,
                                bool block_self_mcast);
    /* Segmentation of TCP by the device (IBV_WR_TSO) on UD QPs; NULL, both, if
     * no device has that.  The most bytes behind the headers that one request
     * may have, 0 if the device does not offer it; and a QP that takes such
     * requests, with headers of IPOIB_VERBS_TSO_HEADER bytes, but otherwise is
     * as that of create_qp() with 'block_self_mcast'. */
    uint32_t (*max_tso)(struct ibv_context *);
    struct ibv_qp *(*create_tso_qp)(struct ibv_pd *,
                                    struct ibv_qp_init_attr *);
    int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int mask);
    int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int mask,
                    struct ibv_qp_init_attr *);
    int (*destroy_qp)(struct ibv_qp *);

    struct ibv_ah *(*create_ah)(struct ibv_pd *, struct ibv_ah_attr *);
    int (*destroy_ah)(struct ibv_ah *);

    /* 'gid' is an MGID, 'lid' the MLID in host byte order. */
    int (*attach_mcast)(struct ibv_qp *, const union ibv_gid *gid,
                        uint16_t lid);
    int (*detach_mcast)(struct ibv_qp *, const union ibv_gid *gid,
                        uint16_t lid);

    /* True if a GRH is required on every packet of 'port' (virtual ports). */
    bool (*port_needs_grh)(struct ibv_context *, uint8_t port);
    /* NUMA node of the device, or -1. */
    int (*numa_node)(struct ibv_context *);
};

/* What is repeated in each segment: the headers of IPoIB, of IPv6 without
 * extension headers, and of TCP with as many options as there can be. */
#define IPOIB_VERBS_TSO_HEADER (4 + 40 + 60)

extern const struct ipoib_verbs ipoib_verbs_hw;
extern const struct ipoib_verbs ipoib_verbs_soft;

/* The table for the device 'name' (options:device): "soft:..." or a device of
 * libibverbs. */
const struct ipoib_verbs *ipoib_verbs_for_device(const char *name);

/* True if 'name' has the form of a soft device.  If it is malformed, stores a
 * message in '*errp' (the caller frees it) and returns true. */
bool ipoib_soft_name_parse(const char *name, char **errp);

/* The forms of a soft device's name, each with "?OPTION&OPTION..." at its end:
 *
 *   soft:unix:PATH         a port of the fabric that listens at PATH
 *   soft:udp:ADDR:PORT     the same, over UDP
 *   soft:loop[:NAME]       a port of the subnet NAME inside this process, or
 *                          of one of its own, with an SA at LID 1
 *
 * Options are guid=0x...,
 *
 *   csum=good        the device computes and checks checksums of TCP and UDP
 *   csum=lies-tx     the same, but packets are sent unchanged
 *   csum=lies-rx     the same, but all packets are found good
 *   tso=good         the device cuts TCP into segments
 *   tso=lies         the same, but all bear the first one's sequence number
 *
 * and for soft:loop
 *
 *   pkeys=A,B,...    the P_Key table (0xffff)
 *   source           made-up neighbours send UDP packets as fast as they are
 *                    polled: for measurements
 *   sink             they take what they are sent (and do so with source)
 *   neighbours=N     how many (1, up to 1048576); they answer ARP
 *   src=IP           the address of the first one (198.19.0.1)
 *   dst=IP           where packets go while no host is known (198.18.0.1);
 *                    otherwise to the hosts that sent ARP, in turn
 *   size=BYTES       of IP packets (64)
 *   grh              packets have a GRH
 *
 * The GUID that a soft device attaches with: by default from a hash of the
 * host name, the process's run directory and 'name', so that it is the same
 * after a restart.  The environment variable OVS_IPOIB_SOFT_GUID, or
 * "?guid=0x..." at the end of the device's name, sets it. */

/* Convenience on top of the table. */

/* As 'max_tso', for any table. */
uint32_t ipoib_verbs_max_tso(const struct ipoib_verbs *, struct ibv_context *);

/* Each of the functions below moves a UD QP through the states that lie before
 * RTS, or to ERR, and returns 0 or a positive errno value. */
struct ipoib_ud_params {
    uint8_t port;
    uint16_t pkey_index;
    uint32_t qkey;
};
int ipoib_verbs_ud_start(const struct ipoib_verbs *, struct ibv_qp *,
                         const struct ipoib_ud_params *);
/* RESET, INIT, RTR, RTS in place: the QPN stays. */
int ipoib_verbs_ud_restart(const struct ipoib_verbs *, struct ibv_qp *,
                           const struct ipoib_ud_params *);
int ipoib_verbs_ud_to_error(const struct ipoib_verbs *, struct ibv_qp *);

#endif /* ipoib-verbs.h */
