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

#ifndef IPOIB_PARTITION_PRIVATE_H
#define IPOIB_PARTITION_PRIVATE_H 1

/* What ipoib-partition.c (life and events), -queues.c and -send.c need of each
 * other.  With the HCA's mutex. */

#include "ipoib-partition.h"

/* ipoib-partition.c: parameters have changed; tells groups, paths, and the
 * netdev. */
void ipoib_partition_update(struct ipoib_partition *);

void ipoib_partition_set_path_params(struct ipoib_partition *);

/* ipoib-partition-prio.c: classes of options:prio-map. */
/* 'map' holds from now on.  No PMD. */
void ipoib_partition_prio_configure(struct ipoib_partition *,
                                    const struct ipoib_prio_map *map);
void ipoib_partition_prio_destroy(struct ipoib_partition *);
/* The neighbour's ordinary path is used, no longer used, or has changed. */
void ipoib_partition_prio_link(struct ipoib_partition *, struct ipoib_neigh *);
void ipoib_partition_prio_unlink(struct ipoib_partition *,
                                 struct ipoib_neigh *);
void ipoib_partition_prio_republish(struct ipoib_partition *,
                                    struct ipoib_neigh *);
/* As for the table of ordinary paths. */
void ipoib_partition_prio_set_params(struct ipoib_partition *,
                                     const struct ipoib_path_params *);
void ipoib_partition_prio_refresh(struct ipoib_partition *);
void ipoib_partition_prio_run(struct ipoib_partition *, long long int now);
void ipoib_partition_prio_wait(const struct ipoib_partition *);

/* ipoib-partition-send.c. */
extern const struct ipoib_neigh_ops ipoib_partition_neigh_ops;
void ipoib_partition_path_changed(void *part, struct ipoib_path *);
/* The MTU has changed: what neighbours take is published again. */
void ipoib_partition_republish_paths(struct ipoib_partition *);
/* Sends, or drops, what waits for 'group'. */
void ipoib_partition_group_ready(struct ipoib_partition *,
                                 struct ipoib_mcast_group *group);
void ipoib_partition_group_refused(struct ipoib_partition *,
                                   struct ipoib_mcast_group *group);
/* 'config' has other limits of groups. */
void ipoib_partition_set_group_limits(struct ipoib_partition *);
/* Takes completions of what the control thread has sent. */
void ipoib_partition_run_sends(struct ipoib_partition *);

/* The same while another gateway is the active one. */
void ipoib_partition_send_group_always(struct ipoib_partition *,
                                       uint32_t sqpn,
                                       const struct ib_gid *mgid,
                                       struct dp_packet *);
void ipoib_partition_deliver_always(struct ipoib_partition *,
                                    unsigned int rxq, struct dp_packet *);

/* ipoib-partition-peers.c: other gateways on the same Ethernet. */
void ipoib_partition_run_peers(struct ipoib_partition *, long long int now);
void ipoib_partition_wait_peers(const struct ipoib_partition *);
void ipoib_partition_leave_peers(struct ipoib_partition *);
/* ipoib-partition.c: all hosts will be announced. */
void ipoib_partition_announce_all(struct ipoib_partition *);

/* ipoib-partition-queues.c. */
void ipoib_partition_destroy_queues(struct ipoib_partition *);
int ipoib_partition_group_attach(void *part, const struct ib_gid *mgid,
                                 uint16_t mlid);
int ipoib_partition_group_detach(void *part, const struct ib_gid *mgid,
                                 uint16_t mlid);
/* Applies the Q_Key 'qkey' to all QPs, or all of 'ud', in place. */
void ipoib_partition_set_qkey(struct ipoib_partition *, uint32_t qkey);
void ipoib_partition_restart_qps(struct ipoib_partition *);
/* Has the pool grow if receive queues lack buffers; about once a second. */
void ipoib_partition_watch_pool(struct ipoib_partition *);
/* Restarts transmit queues that have failed or were stopped. */
void ipoib_partition_release_txq(const struct ipoib_partition *,
                                 struct ipoib_txq *);
void ipoib_partition_run_txqs(struct ipoib_partition *);
void ipoib_partition_wait_txqs(const struct ipoib_partition *);
/* True if one of them can be restarted now. */
bool ipoib_partition_txqs_pending(const struct ipoib_partition *);

/* ipoib-partition-born.c: groups that are born on the fabric. */
void ipoib_partition_born_init(struct ipoib_partition *);
void ipoib_partition_born_destroy(struct ipoib_partition *);
void ipoib_partition_born_run(struct ipoib_partition *, long long int now);
void ipoib_partition_born_wait(const struct ipoib_partition *);
/* See struct ipoib_hca_client_ops. */
void ipoib_partition_born_trap(struct ipoib_partition *, uint16_t trap,
                               const struct ib_gid *mgid);

/* ipoib-partition-watch.c: queues that fail, or stand still. */
/* The device reports an error of 'qpn', of whatever partition. */
void ipoib_partition_qp_event(struct ipoib_partition *, enum ibv_event_type,
                              uint32_t qpn);
/* 'qpn' had failed, and works again: counts and tells that. */
void ipoib_partition_recovered(struct ipoib_partition *, uint32_t qpn,
                               const char *why);
/* Looks for queues that stand still; about once a second. */
void ipoib_partition_watch(struct ipoib_partition *, long long int now);

/* ipoib-partition-offload.c: what the device computes in our stead. */
void ipoib_partition_offload_init(struct ipoib_partition *);
void ipoib_partition_offload_destroy(struct ipoib_partition *);
/* The partition is up. */
void ipoib_partition_offload_start(struct ipoib_partition *);
/* True if there is something new to tell. */
bool ipoib_partition_offload_run(struct ipoib_partition *);
void ipoib_partition_offload_wait(const struct ipoib_partition *);
/* How many bytes of TCP the device says that it cuts into segments at a time,
 * 0: it does not, or hosts do not leave that to the port. */
uint32_t ipoib_partition_max_tso(const struct ipoib_partition *);

#endif /* ipoib-partition-private.h */
