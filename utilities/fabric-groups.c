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

#include <config.h>
#include "fabric-groups.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-ports.h"
#include "hash.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_groups);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(60, 60);

static uint32_t
hash_gid(const struct ib_gid *gid)
{
    return hash_bytes(gid->raw, sizeof gid->raw, 0);
}

void
fabric_groups_init(struct fabric *fabric)
{
    hmap_init(&fabric->groups);
    hmap_init(&fabric->routes);
    for (size_t i = 0; i < fabric->cfg.n_pkeys; i++) {
        fabric_make_broadcast_group(fabric, fabric->cfg.pkeys[i]);
    }
}

static void
group_destroy(struct fabric *fabric, struct fabric_group *group)
{
    unsigned int i = group->mlid - IB_LID_MULTICAST;
    struct fabric_member *member;

    LIST_FOR_EACH_SAFE (member, group_node, &group->members) {
        fabric_member_set_state(member->port, group, 0);
    }
    fabric->mlids[i] = NULL;
    fabric->next_mlid = MIN(fabric->next_mlid, i);
    hmap_remove(&fabric->groups, &group->mgid_node);
    free(group);
}

static void
forget_routes(struct fabric *fabric)
{
    struct fabric_route *route;

    HMAP_FOR_EACH_SAFE (route, node, &fabric->routes) {
        hmap_remove(&fabric->routes, &route->node);
        free(route);
    }
}

/* Keeps who receives by the MLID of 'group' now. */
static void
keep_routes(struct fabric *fabric, const struct fabric_group *group)
{
    const struct fabric_member *member;

    LIST_FOR_EACH (member, group_node, &group->members) {
        if (member->state & (IB_JOIN_FULL | IB_JOIN_NON)) {
            struct fabric_route *route = xmalloc(sizeof *route);

            route->mlid = group->mlid;
            route->guid = member->port->guid;
            hmap_insert(&fabric->routes, &route->node, route->mlid);
        }
    }
}

void
fabric_groups_destroy(struct fabric *fabric)
{
    struct fabric_group *group;

    HMAP_FOR_EACH_SAFE (group, mgid_node, &fabric->groups) {
        group_destroy(fabric, group);
    }
    hmap_destroy(&fabric->groups);
    forget_routes(fabric);
    hmap_destroy(&fabric->routes);
}

void
fabric_groups_run(struct fabric *fabric)
{
    if (!hmap_is_empty(&fabric->routes)
        && time_msec() >= fabric->routes_until) {
        forget_routes(fabric);
    }
}

void
fabric_groups_wait(struct fabric *fabric)
{
    if (!hmap_is_empty(&fabric->routes)) {
        poll_timer_wait_until(fabric->routes_until);
    }
}

struct fabric_group *
fabric_group_by_mgid(const struct fabric *fabric, const struct ib_gid *mgid)
{
    struct fabric_group *group;

    HMAP_FOR_EACH_WITH_HASH (group, mgid_node, hash_gid(mgid),
                             &fabric->groups) {
        if (ib_gid_equals(&group->mgid, mgid)) {
            return group;
        }
    }
    return NULL;
}

struct fabric_group *
fabric_group_by_mlid(const struct fabric *fabric, uint16_t mlid)
{
    return (mlid >= IB_LID_MULTICAST && mlid != IB_LID_PERMISSIVE
            ? fabric->mlids[mlid - IB_LID_MULTICAST] : NULL);
}

static int
compare_groups(const void *a_, const void *b_)
{
    const struct fabric_group *const *a = a_;
    const struct fabric_group *const *b = b_;

    return (*a)->mlid < (*b)->mlid ? -1 : (*a)->mlid > (*b)->mlid;
}

/* Returns all groups in order of their MLIDs.  The caller must free the
 * array. */
struct fabric_group **
fabric_groups_sorted(const struct fabric *fabric, size_t *n)
{
    struct fabric_group **groups, *group;

    *n = 0;
    groups = xmalloc((hmap_count(&fabric->groups) + 1) * sizeof *groups);
    HMAP_FOR_EACH (group, mgid_node, &fabric->groups) {
        groups[(*n)++] = group;
    }
    qsort(groups, *n, sizeof *groups, compare_groups);
    return groups;
}

/* Returns the MGID of the IPv4 broadcast group of 'pkey' (RFC 4391, 4). */
struct ib_gid
fabric_broadcast_mgid(uint16_t pkey)
{
    return ib_gid_make(UINT64_C(0xff12401b00000000)
                       | (uint64_t) (pkey | IB_PKEY_FULL) << 16,
                       UINT32_MAX);
}

/* Makes the broadcast group of 'pkey', for good, if it does not exist. */
void
fabric_make_broadcast_group(struct fabric *fabric, uint16_t pkey)
{
    const struct fabric_config *cfg = &fabric->cfg;
    struct fabric_group template = {
        .mgid = fabric_broadcast_mgid(pkey),
        .permanent = true,
        .pkey = pkey | IB_PKEY_FULL,
        .qkey = cfg->qkey,
        .mtu = cfg->mtu,
        .rate = cfg->group_rate,
        .life = cfg->timeout,
        .sl = cfg->sl,
        .scope = 2,
    };
    struct fabric_group *group = fabric_group_by_mgid(fabric, &template.mgid);

    if (group) {
        group->permanent = true;
    } else if (pkey & IB_PKEY_MASK) {
        fabric_group_create(fabric, &template);
    }
}

/* Makes a group like 'template', with an MLID of its own and without members.
 * Its MGID must be new.  Returns NULL if all MLIDs are taken. */
struct fabric_group *
fabric_group_create(struct fabric *fabric,
                    const struct fabric_group *template)
{
    struct fabric_group *group;
    unsigned int i;

    for (i = fabric->next_mlid; i < FABRIC_N_MLIDS && fabric->mlids[i]; i++) {
        continue;
    }
    fabric->next_mlid = i;
    if (i >= FABRIC_N_MLIDS) {
        VLOG_WARN_RL(&rl, "all %d multicast LIDs are taken", FABRIC_N_MLIDS);
        return NULL;
    }

    group = xmemdup(template, sizeof *template);
    group->mlid = IB_LID_MULTICAST + i;
    ovs_list_init(&group->members);
    group->n_members = 0;
    fabric->mlids[i] = group;
    hmap_insert(&fabric->groups, &group->mgid_node, hash_gid(&group->mgid));
    fabric->notify(fabric, IB_TRAP_GROUP_CREATED, &group->mgid);
    return group;
}

/* Changes the MLID of 'group'.  Who must know is the caller's affair.  Returns
 * NULL or an error, which the caller must free. */
char *
fabric_group_set_mlid(struct fabric *fabric, struct fabric_group *group,
                      uint16_t mlid)
{
    unsigned int i = mlid - IB_LID_MULTICAST;

    if (mlid < IB_LID_MULTICAST || i >= FABRIC_N_MLIDS) {
        return xasprintf("0x%04"PRIx16": not a multicast LID from 0x%04x to "
                         "0x%04x", mlid, IB_LID_MULTICAST,
                         IB_LID_MULTICAST + FABRIC_N_MLIDS - 1);
    }
    if (fabric->mlids[i] && fabric->mlids[i] != group) {
        return xasprintf("multicast LID 0x%04"PRIx16" belongs to another "
                         "group", mlid);
    }
    fabric->mlids[group->mlid - IB_LID_MULTICAST] = NULL;
    fabric->next_mlid = MIN(fabric->next_mlid,
                            group->mlid - IB_LID_MULTICAST);
    group->mlid = mlid;
    fabric->mlids[i] = group;
    return NULL;
}

/* Removes 'group' unless it is permanent or has a member of the sort that
 * keeps it. */
void
fabric_group_remove_if_unused(struct fabric *fabric,
                              struct fabric_group *group)
{
    struct fabric_member *member;
    struct ib_gid mgid;

    if (group->permanent) {
        return;
    }
    LIST_FOR_EACH (member, group_node, &group->members) {
        if (member->state & (IB_JOIN_FULL | IB_JOIN_SEND_ONLY_FULL)) {
            return;
        }
    }
    mgid = group->mgid;
    group_destroy(fabric, group);
    fabric->notify(fabric, IB_TRAP_GROUP_DELETED, &mgid);
}

/* Forgets all members, and the groups that are not permanent: what a restart
 * of a subnet manager does. */
void
fabric_groups_forget(struct fabric *fabric)
{
    struct fabric_member *member;
    struct fabric_group *group;

    forget_routes(fabric);
    fabric->routes_until = time_msec() + FABRIC_ROUTES_MS;
    HMAP_FOR_EACH_SAFE (group, mgid_node, &fabric->groups) {
        keep_routes(fabric, group);
        if (!group->permanent) {
            group_destroy(fabric, group);
        } else {
            LIST_FOR_EACH_SAFE (member, group_node, &group->members) {
                fabric_member_set_state(member->port, group, 0);
            }
        }
    }
}

/* Members. */

static struct fabric_member *
find_member(const struct fabric_port *port, const struct fabric_group *group)
{
    struct fabric_member *member;

    HMAP_FOR_EACH_WITH_HASH (member, port_node, hash_pointer(group, 0),
                             &port->members) {
        if (member->group == group) {
            return member;
        }
    }
    return NULL;
}

/* Returns the JoinState of 'port' in 'group', 0 if it is no member. */
uint8_t
fabric_member_state(const struct fabric_port *port,
                    const struct fabric_group *group)
{
    const struct fabric_member *member = find_member(port, group);

    return member ? member->state : 0;
}

void
fabric_member_set_state(struct fabric_port *port, struct fabric_group *group,
                        uint8_t state)
{
    struct fabric_member *member = find_member(port, group);

    if (!state) {
        if (member) {
            hmap_remove(&port->members, &member->port_node);
            ovs_list_remove(&member->group_node);
            group->n_members--;
            free(member);
        }
        return;
    }
    if (!member) {
        member = xzalloc(sizeof *member);
        member->port = port;
        member->group = group;
        hmap_insert(&port->members, &member->port_node,
                    hash_pointer(group, 0));
        ovs_list_push_back(&group->members, &member->group_node);
        group->n_members++;
    }
    member->state = state;
}

/* Takes 'port' out of all its groups. */
void
fabric_leave_all(struct fabric *fabric, struct fabric_port *port)
{
    struct fabric_member *member;

    HMAP_FOR_EACH_SAFE (member, port_node, &port->members) {
        struct fabric_group *group = member->group;

        fabric_member_set_state(port, group, 0);
        fabric_group_remove_if_unused(fabric, group);
    }
}
