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

#ifndef FABRIC_GROUPS_H
#define FABRIC_GROUPS_H 1

/* The multicast groups of the fabric and their members. */

#include "fabric.h"

struct fabric_group {
    struct hmap_node mgid_node; /* In 'groups' of struct fabric. */
    struct ib_gid mgid;
    uint16_t mlid;
    bool permanent;             /* Stays without members. */

    uint16_t pkey;              /* With the bit of full membership. */
    uint32_t qkey;
    uint8_t mtu, rate, life;    /* Enumerations. */
    uint8_t sl, tclass, hop, scope;
    uint32_t flow;
    struct ovs_list members;    /* Of struct fabric_member. */
    size_t n_members;
};

struct fabric_member {
    struct hmap_node port_node; /* In 'members' of the port, by group. */
    struct ovs_list group_node; /* In 'members' of the group. */
    struct fabric_port *port;
    struct fabric_group *group;
    uint8_t state;              /* IB_JOIN_*. */
};

/* Switches forward to the members of before a restart of the subnet manager
 * until the new one has written their tables, which takes this long, in ms. */
#define FABRIC_ROUTES_MS 1000
struct fabric_route {
    struct hmap_node node;      /* In 'routes' of struct fabric. */
    uint16_t mlid;
    uint64_t guid;              /* Of a port that received by 'mlid'. */
};

void fabric_groups_init(struct fabric *);
void fabric_groups_run(struct fabric *);
void fabric_groups_wait(struct fabric *);
void fabric_groups_destroy(struct fabric *);

struct fabric_group *fabric_group_by_mgid(const struct fabric *,
                                          const struct ib_gid *);
struct fabric_group *fabric_group_by_mlid(const struct fabric *,
                                          uint16_t mlid);
struct fabric_group **fabric_groups_sorted(const struct fabric *, size_t *n);
struct ib_gid fabric_broadcast_mgid(uint16_t pkey);
void fabric_make_broadcast_group(struct fabric *, uint16_t pkey);

struct fabric_group *fabric_group_create(struct fabric *,
                                         const struct fabric_group *template);
char *fabric_group_set_mlid(struct fabric *, struct fabric_group *,
                            uint16_t mlid);
void fabric_group_remove_if_unused(struct fabric *, struct fabric_group *);
void fabric_groups_forget(struct fabric *);

uint8_t fabric_member_state(const struct fabric_port *,
                            const struct fabric_group *);
void fabric_member_set_state(struct fabric_port *, struct fabric_group *,
                             uint8_t state);
void fabric_leave_all(struct fabric *, struct fabric_port *);

#endif /* fabric-groups.h */
