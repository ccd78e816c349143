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

#ifndef IPOIB_PATH_H
#define IPOIB_PATH_H 1

/* Paths: what the SA says of a destination GID, cached with its address
 * handle (AH), and the deferred end of AHs.
 *
 * Thread-safety: none; everything belongs to the control thread (with the
 * HCA's mutex).  AHs that are handed out may be read by the data path until an
 * RCU grace period after 'changed' was called. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-ah.h"
#include "ipoib-sa.h"
#include "ipoib-verbs.h"
#include "ipoib-wire.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"

enum ipoib_path_state {
    IPOIB_PATH_RESOLVING,       /* No AH yet, a query is under way. */
    IPOIB_PATH_READY,           /* AH there, possibly being refreshed. */
    IPOIB_PATH_FAILED,          /* No record, or no answer; hold-down. */
};

struct ipoib_path {
    struct hmap_node node;      /* In ipoib_path_table, by 'dgid'. */
    struct ib_gid dgid;
    enum ipoib_path_state state;
    struct ibv_ah *ah;          /* If READY. */
    uint16_t dlid;              /* Host byte order, as all that follow. */
    uint8_t sl, rate, mtu;      /* MTU as an IB enum. */
    uint8_t hop_limit;
    uint16_t last_status;       /* SA status of the last answer. */
    int last_error;             /* errno value of the last try. */
    long long int resolved;     /* time_msec() of the last good answer. */
    unsigned int n_users;
    uint8_t tclass;             /* In a GRH. */
    bool stale;                 /* To be asked again; AH is still used. */
    void *aux;                  /* For the table's owner; NULL at first. */

    /* Private to ipoib-path.c. */
    struct ipoib_path_table *table;
    struct ipoib_sa_request *request;
    struct ovs_list todo;       /* In one of the table's lists, or empty. */
    struct ibv_ah_attr attr;    /* Of 'ah'. */
    uint8_t record_mtu;         /* As answered; 'mtu' is at most the port's. */
    long long int next_try;     /* FAILED or stale: not before this. */
    long long int last_asked;
    long long int unused_since; /* If 'n_users' is 0. */
    unsigned int n_failures;    /* In a row. */
};

/* What paths are made of; may change in the course of time. */
struct ipoib_path_params {
    struct ib_gid sgid;
    uint8_t port;
    uint16_t lid;               /* Own base LID, for the source path bits. */
    uint8_t lmc;
    uint16_t pkey;              /* Host byte order, with full-member bit. */
    uint8_t tclass;             /* Of the broadcast group. */
    bool needs_grh;             /* The port requires a GRH. */
    uint8_t port_mtu;           /* Active MTU, IB enum. */

    /* Priorities: paths with the service level 'sl', if the SA grants it, and
     * with 'grh_tclass' in a GRH. */
    bool wants_sl, sets_tclass;
    uint8_t sl, grh_tclass;
};

struct ipoib_path_table;

/* Called whenever 'state', 'ah' or 'mtu' of a path changed.  An AH that is
 * no longer in 'path' was retired already: withdraw it from the data path
 * now. */
typedef void ipoib_path_changed_cb(void *aux, struct ipoib_path *path);

struct ipoib_path_table *
ipoib_path_table_create(const struct ipoib_verbs *, struct ibv_pd *,
                        struct ipoib_sa *, struct ipoib_ah_reaper *,
                        ipoib_path_changed_cb *, void *aux);
void ipoib_path_table_destroy(struct ipoib_path_table *);
/* Changed parameters mark all paths stale (and fix their AHs as far as
 * needed). */
void ipoib_path_table_set_params(struct ipoib_path_table *,
                                 const struct ipoib_path_params *);

/* The path to 'dgid', with one user more; starts a query if there is none. */
struct ipoib_path *ipoib_path_ref(struct ipoib_path_table *,
                                  const struct ib_gid *dgid);
/* One user less; a path without users goes after a while. */
void ipoib_path_unref(struct ipoib_path *);
/* Somebody needs 'path' now: starts a query if it is FAILED and its hold-down
 * is over. */
void ipoib_path_poke(struct ipoib_path *);
/* Something says that 'path' is not right any more (e.g. an ARP with another
 * SLID, modulo LMC): asks again, at most once a second a path. */
void ipoib_path_suspect(struct ipoib_path *);
/* Marks all stale and asks again, a window at a time; AHs stay in use, for
 * some seconds also where the SA knows of no path: after a restart of the
 * fabric the other ports are yet to come back. */
void ipoib_path_refresh_all(struct ipoib_path_table *);
void ipoib_path_table_run(struct ipoib_path_table *, long long int now);
void ipoib_path_table_wait(struct ipoib_path_table *);
/* For commands: calls 'cb' for each path. */
void ipoib_path_for_each(const struct ipoib_path_table *,
                         void (*cb)(const struct ipoib_path *, void *aux),
                         void *aux);
const char *ipoib_path_state_to_string(enum ipoib_path_state);

#endif /* ipoib-path.h */
