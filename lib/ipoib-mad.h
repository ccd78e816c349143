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

#ifndef IPOIB_MAD_H
#define IPOIB_MAD_H 1

/* How management datagrams travel: an interface, and the transport over a UD
 * queue pair of our own (Q_Key 0x80010000), which is the same on the software
 * HCA and on hardware.
 *
 * Thread-safety: none; everything belongs to the control thread. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-verbs.h"
#include "ipoib-wire.h"

/* Where MADs go: the subnet administrator, as the port says at that time. */
struct ipoib_mad_dest {
    uint16_t lid;               /* SM LID, host byte order; 0: nowhere. */
    uint8_t sl;                 /* SM SL. */
    bool has_grh;               /* The port requires a GRH. */
    struct ib_gid dgid;         /* If so: prefix + 0x0200000000000002. */
};

static inline bool
ipoib_mad_dest_equals(const struct ipoib_mad_dest *a,
                      const struct ipoib_mad_dest *b)
{
    return a->lid == b->lid && a->sl == b->sl && a->has_grh == b->has_grh
           && (!a->has_grh || ib_gid_equals(&a->dgid, &b->dgid));
}

struct ipoib_mad_transport;

/* A MAD of class SubnAdm that arrived, with the SLID that it came from (host
 * byte order; 0: unknown).  The MAD is gone when the callback returns. */
typedef void ipoib_mad_recv_cb(void *aux, const struct ib_sa_mad *,
                               uint16_t slid);
/* A request of ours that nobody answered or took, as the kernel says. */
typedef void ipoib_mad_undelivered_cb(void *aux, const struct ib_sa_mad *);

struct ipoib_mad_class {
    const char *name;           /* "qp" or "umad". */
    bool rmpp;                  /* The kernel acknowledges segments. */
    void (*destroy)(struct ipoib_mad_transport *);
    /* Sends 'mad'; 0 or a positive errno value: EAGAIN if all send slots are
     * in use. */
    int (*send)(struct ipoib_mad_transport *, const struct ib_sa_mad *mad,
                const struct ipoib_mad_dest *);
    /* The P_Key table, the port's state or the like changed.  0 or a positive
     * errno value. */
    int (*update)(struct ipoib_mad_transport *);
    /* Nothing is answered: starts anew.  May be NULL. */
    void (*reset)(struct ipoib_mad_transport *);
    void (*run)(struct ipoib_mad_transport *);   /* Calls the callback. */
    void (*wait)(struct ipoib_mad_transport *);  /* For poll_block(). */
};

struct ipoib_mad_transport {
    const struct ipoib_mad_class *class;
    ipoib_mad_recv_cb *recv;
    ipoib_mad_undelivered_cb *undelivered; /* May be NULL. */
    void *aux;
    int broken;                 /* errno: of no use any more.  Set by run(). */
    unsigned int n_recovered;   /* Times that it failed and works again. */
    uint32_t qpn;               /* Queue pair, for the log, or 0. */
};

/* A transport over a UD QP on 'port' of 'ctx' and in 'pd', which must outlive
 * it, with the P_Key index of 0xffff or else 0x7fff or else 0.  Returns NULL
 * with errno set (EPERM: the Q_Key needs CAP_NET_RAW). */
struct ipoib_mad_transport *
ipoib_mad_qp_create(const struct ipoib_verbs *, struct ibv_context *ctx,
                    struct ibv_pd *pd, uint8_t port, ipoib_mad_recv_cb *,
                    void *aux);

/* A transport over libibumad, by the kernel's queue pair 1 of 'port' of the
 * device of that name.  Returns NULL with errno set (EACCES: only root
 * may). */
struct ipoib_mad_transport *
ipoib_mad_umad_create(const char *device, uint8_t port, ipoib_mad_recv_cb *,
                      void *aux);

#endif /* ipoib-mad.h */
