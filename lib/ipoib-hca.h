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

#ifndef IPOIB_HCA_H
#define IPOIB_HCA_H 1

/* An HCA: one opened device, shared by all ports on it, with its protection
 * domain, its asynchronous events, its control thread, and for each of its
 * ports in use the attributes, the P_Key table and the SA client.
 *
 * Thread-safety: 'mutex' guards everything that belongs to the HCA, its ports
 * and partitions, outside the data path.  The control thread holds it while
 * it works and releases it to sleep; the main thread takes it to configure
 * and to show.  PMD threads never take it.  Nobody waits for the fabric while
 * holding it. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include "ipoib-events.h"
#include "ipoib-mad.h"
#include "ipoib-msgq.h"
#include "ipoib-path.h"
#include "ipoib-sa-inform.h"
#include "ipoib-sa.h"
#include "ipoib-verbs.h"
#include "latch.h"
#include "openvswitch/list.h"
#include "openvswitch/thread.h"

#define IPOIB_MAX_PKEYS 128

struct ipoib_hca {
    struct ovs_list node;       /* In the list of all HCAs. */
    char *name;                 /* As in options:device. */
    unsigned int n_refs;        /* Guarded by the list's mutex. */

    const struct ipoib_verbs *verbs;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    int numa_id;

    struct ovs_mutex mutex;
    struct ovs_list ports OVS_GUARDED;  /* Of struct ipoib_hca_port. */
    struct ipoib_ah_reaper *reaper OVS_GUARDED;
    bool fatal OVS_GUARDED;     /* The device has failed for good. */
    atomic_bool has_failed;     /* The same, for all to read. */

    struct ipoib_waker waker;   /* PMDs wake the control thread. */
    struct latch exit_latch;
    pthread_t thread;
};

/* What changed of a port, bits. */
enum {
    IPOIB_PORT_STATE      = 1 << 0,
    IPOIB_PORT_LID        = 1 << 1, /* LID or LMC. */
    IPOIB_PORT_SM         = 1 << 2, /* SM LID or SL. */
    IPOIB_PORT_PKEYS      = 1 << 3,
    IPOIB_PORT_GID        = 1 << 4,
    IPOIB_PORT_MTU        = 1 << 5,
    IPOIB_PORT_REREGISTER = 1 << 6, /* The SM asks to join again. */
    IPOIB_PORT_FATAL      = 1 << 7, /* 'hca->fatal' was set. */
    IPOIB_PORT_GRH        = 1 << 8, /* Whether it requires a GRH. */
};

/* options:sa: how to reach the subnet administrator. */
enum ipoib_sa_mode {
    IPOIB_SA_AUTO,              /* As _QP, and as _UMAD where that fails. */
    IPOIB_SA_QP,                /* By a queue pair of our own. */
    IPOIB_SA_UMAD,              /* By libibumad. */
};
/* "auto", "qp", "umad". */
const char *ipoib_sa_mode_to_string(enum ipoib_sa_mode);

struct ipoib_hca_port {
    struct ovs_list node;       /* In ipoib_hca 'ports'. */
    struct ipoib_hca *hca;
    uint8_t num;                /* Port number, from 1. */
    char *label;                /* For the log. */
    struct ipoib_events events;
    unsigned int n_refs;

    struct ibv_port_attr attr;
    bool needs_grh;
    struct ib_gid gid;          /* GID 0. */
    uint64_t guid;              /* Its GUID, host byte order. */
    uint16_t pkeys[IPOIB_MAX_PKEYS]; /* Host byte order. */
    int n_pkeys;

    struct ipoib_mad_transport *transport; /* NULL: could not be made. */
    int transport_error;        /* Why not, errno. */
    long long int next_transport; /* When to try again. */
    enum ipoib_sa_mode sa_mode;
    bool use_umad;              /* IPOIB_SA_AUTO has come to that. */
    unsigned int n_recovered;   /* Of 'transport', as was told. */
    uint64_t n_answers, n_timeouts; /* Of the SA when it was last heard. */
    long long int next_reset;
    bool sa_proven;             /* An answer has come by 'transport'. */
    long long int next_switch;  /* IPOIB_SA_AUTO: not the other one before. */
    long long int switch_pause; /* Doubles, ms. */
    long long int next_poll;    /* Of the attributes, if it is not active. */
    struct ipoib_sa *sa;
    struct ipoib_inform *inform; /* Traps 66 and 67, if a client wants. */
    struct ovs_list clients;    /* Of struct ipoib_hca_client. */
};

/* What lives on a port of an HCA: a partition. */
struct ipoib_hca_client {
    struct ovs_list node;       /* In ipoib_hca_port 'clients'. */
    const struct ipoib_hca_client_ops *ops;
    bool wants_traps;           /* ipoib_hca_port_want_traps(). */
};

/* All are called by the control thread with the HCA's mutex. */
struct ipoib_hca_client_ops {
    /* Does what there is to do; true if there is more. */
    bool (*run)(struct ipoib_hca_client *, long long int now);
    /* Arranges for poll_block() to wake up when run() has something to do. */
    void (*wait)(struct ipoib_hca_client *);
    /* True if a PMD has left something. */
    bool (*pending)(struct ipoib_hca_client *);
    void (*port_changed)(struct ipoib_hca_client *, unsigned int changes);
    /* An event of one of the QPs (of any client) or SRQs. */
    void (*qp_event)(struct ipoib_hca_client *, enum ibv_event_type,
                     uint32_t qpn);
    /* The SA reports 'trap' (IB_TRAP_GROUP_*) of the group 'mgid', of any
     * partition; or, with 'trap' 0, reports come from now on, and what was
     * before is not known.  Only for those that want traps. */
    void (*trap)(struct ipoib_hca_client *, uint16_t trap,
                 const struct ib_gid *mgid);
};

/* True if the device has failed or was removed.  It stays so until all have
 * unreferenced it; who references the device meanwhile, gets a new HCA. */
bool ipoib_hca_has_failed(const struct ipoib_hca *);

/* The HCA 'device' (options:device), opened if it is not open yet.  On
 * failure returns a positive errno value and stores a message in '*errp',
 * which the caller frees.  Main thread. */
int ipoib_hca_ref(const char *device, struct ipoib_hca **, char **errp);
void ipoib_hca_unref(struct ipoib_hca *);

/* Port 'num' of 'hca', with its SA client.  Fails with ENODEV if there is no
 * such port, EPROTONOSUPPORT if its link layer is not InfiniBand. */
int ipoib_hca_port_ref(struct ipoib_hca *hca, uint8_t num,
                       struct ipoib_hca_port **)
    OVS_REQUIRES(hca->mutex);
void ipoib_hca_port_unref(struct ipoib_hca_port *);

/* Adds 'client' to 'port'; it is run from now on. */
void ipoib_hca_port_add_client(struct ipoib_hca_port *,
                               struct ipoib_hca_client *);
void ipoib_hca_port_remove_client(struct ipoib_hca_port *,
                                  struct ipoib_hca_client *);

/* Whether 'client' wants to hear of groups that are created and deleted. */
void ipoib_hca_port_want_traps(struct ipoib_hca_port *,
                               struct ipoib_hca_client *, bool want);

/* The way to the SA, of all on the port: who sets it last is heard. */
void ipoib_hca_port_set_sa_mode(struct ipoib_hca_port *, enum ipoib_sa_mode);

/* Index of 'pkey' in the port's table, full or limited member, or -1. */
int ipoib_hca_port_find_pkey(const struct ipoib_hca_port *, uint16_t pkey);

/* Makes the control thread run soon. */
void ipoib_hca_kick(struct ipoib_hca *);

const char *ipoib_port_state_to_string(enum ibv_port_state);

#endif /* ipoib-hca.h */
