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

#ifndef IPOIB_HOSTQP_H
#define IPOIB_HOSTQP_H 1

/* The queue pairs of hosts: one for each host as long as there are few enough,
 * made ahead of need, kept in receive queues that hosts are spread over by
 * their MAC, and retired so that neither a receive buffer is lost nor a QPN
 * comes back while neighbours still remember it.
 *
 * The life of one: READY (made, no host) -> IN_USE -> DRAINING (in ERR; its
 * last receive completions are in the queue's CQ until the PMD has taken
 * them) -> RESTING (keeps its QPN out of use for IPOIB_QPN_REST ms) ->
 * destroyed.
 *
 * Thread-safety: the HCA's mutex. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-host.h"
#include "ipoib-ring.h"
#include "ipoib-table.h"

#define IPOIB_QPN_REST (10 * 60 * 1000)
#define IPOIB_MAX_ROUTER_QPS 64

struct ipoib_hostqps;

struct ipoib_hostqps *ipoib_hostqps_create(struct ipoib_shared *,
                                           struct ipoib_ctlq *);
/* All QPs must be gone: see ipoib_hostqps_clear(). */
void ipoib_hostqps_destroy(struct ipoib_hostqps *);

/* The queues to make QPs in from now on, not owned; 'max' is how many hosts
 * get a QP of their own.  'ud' is copied. */
void ipoib_hostqps_configure(struct ipoib_hostqps *, struct ipoib_rxq **,
                             unsigned int n_rxq,
                             const struct ipoib_ud_params *ud, size_t max);
/* Applies 'ud' to every QP in place, QPNs stay: the Q_Key only, or, if
 * 'restart', the P_Key index as well. */
void ipoib_hostqps_update(struct ipoib_hostqps *,
                          const struct ipoib_ud_params *ud, bool restart);

/* Gives 'host' a QP, or the base QP of its receive queue where there are too
 * many, and publishes it.  Nothing if it has one; a host that shares one gets
 * its own if there is one by now.  Routers, which could not be found by
 * destination address, get one in any case, up to IPOIB_MAX_ROUTER_QPS
 * beyond the limit. */
void ipoib_hostqps_assign(struct ipoib_hostqps *, struct ipoib_host_table *,
                          struct ipoib_host *);
/* Gives 'host', which has a QP, others in as many receive queues as are
 * needed for 'n', as far as there are queues and QPs.  They are published, and
 * packets to any of them are for it.  Returns true if it has more now. */
bool ipoib_hostqps_spread(struct ipoib_hostqps *, struct ipoib_host_table *,
                          struct ipoib_host *, unsigned int n);
/* The number of the QP of 'host' that those with 'hash' are to use. */
uint32_t ipoib_hostqps_pick(const struct ipoib_host *host, uint32_t hash);
/* Withdraws and retires the QPs of 'host'. */
void ipoib_hostqps_release(struct ipoib_hostqps *, struct ipoib_host_table *,
                           struct ipoib_host *);
/* Destroys all QPs at once; no PMD polls the receive queues. */
void ipoib_hostqps_clear(struct ipoib_hostqps *);

/* The QP with number 'qpn', one that a host uses or a base QP of the receive
 * queues, or NULL. */
struct ibv_qp *ipoib_hostqps_find(const struct ipoib_hostqps *, uint32_t qpn);

/* A send on QP 'qpn' has failed, which took it to SQE: back to RTS, from ERR
 * by way of RESET.  Returns true if it works again. */
bool ipoib_hostqps_resume(struct ipoib_hostqps *, uint32_t qpn);
/* Starts 'qpn' again by way of RESET, also a base QP.  True if it is one that
 * is in use and works again. */
bool ipoib_hostqps_restart(struct ipoib_hostqps *, uint32_t qpn);
/* Returns true if an error was reported, and the QP works again. */
bool ipoib_hostqps_event(struct ipoib_hostqps *, enum ibv_event_type,
                         uint32_t qpn);
void ipoib_hostqps_run(struct ipoib_hostqps *, long long int now);
void ipoib_hostqps_wait(struct ipoib_hostqps *);

/* Looks for QPs in use that get nothing without an error, about once a second:
 * calls 'probe' to have a packet sent from a QP to itself, in receive queue
 * 'rxq', and 'stalled' if a few in a row did not come although the queue has
 * something else.  'missed' says that one did not come. */
struct ipoib_hostqps_watcher {
    void (*probe)(void *aux, struct ibv_qp *, unsigned int rxq, bool missed);
    void (*stalled)(void *aux, uint32_t qpn);
    void *aux;
};
void ipoib_hostqps_watch(struct ipoib_hostqps *,
                         const struct ipoib_hostqps_watcher *,
                         long long int now);
/* Such a packet has come to 'qpn'. */
void ipoib_hostqps_probed(struct ipoib_hostqps *, uint32_t qpn,
                          long long int now);

struct ipoib_hostqp_stats {
    size_t n_ready, n_in_use, n_draining, n_resting, n_sharing;
    uint64_t n_made, n_failed;
};
void ipoib_hostqps_get_stats(const struct ipoib_hostqps *,
                             struct ipoib_hostqp_stats *);

#endif /* ipoib-hostqp.h */
