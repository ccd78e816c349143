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
#undef NDEBUG
#include "ipoib-mcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ovs-rcu.h"
#include "ovstest.h"
#include "random.h"
#include "test-ipoib-fake.h"
#include "timeval.h"
#include "util.h"

/* Measured with OpenSM 3.3.23. */
#define PORT_GID "fe800000000000000000000000100003"
#define BROADCAST "ff12401bffff000000000000ffffffff"
#define MDNS "ff12401bffff000000000000000000fb"
#define BROADCAST_REQUEST                                               \
    BROADCAST PORT_GID                                                  \
    "0000000000000000ffff00000000000001000000"
#define BROADCAST_ANSWER                                                \
    BROADCAST PORT_GID                                                  \
    "00000b1bc0008400ffff83920000000021000000"
#define BROADCAST_CREATE                                                \
    BROADCAST PORT_GID                                                  \
    "00000b1b00008400ffff83000000000001000000"
#define MDNS_REQUEST                                                    \
    MDNS PORT_GID                                                       \
    "00000b1b00008400ffff83000000000001000000"
#define MDNS_SEND_ONLY                                                  \
    MDNS PORT_GID                                                       \
    "00000b1b00008400ffff83000000000008000000"
#define MDNS_ANSWER                                                     \
    MDNS PORT_GID                                                       \
    "00000b1bc0028400ffff83800000000001000000"
#define MDNS_LEAVE                                                      \
    MDNS PORT_GID                                                       \
    "0000000000000000000000000000000001000000"
#define MDNS_LEAVE_BOTH                                                 \
    MDNS PORT_GID                                                       \
    "0000000000000000000000000000000009000000"

#define CHECK_JOIN(MAD, MASK, HEX)                                      \
    fake_check_request(MAD, 0x02, 0x0038, MASK, HEX, OVS_SOURCE_LOCATOR)
#define CHECK_LEAVE(MAD, HEX)                                           \
    fake_check_request(MAD, 0x15, 0x0038, 0x10003, HEX, OVS_SOURCE_LOCATOR)

struct env {
    struct fake_transport *t;
    struct ipoib_sa *sa;
    struct ipoib_ah_reaper *reaper;
    struct ipoib_mcast *mcast;
    struct ipoib_mcast_params params;
    struct ib_gid mdns;
    int n_changed, n_removed;
    int n_attached;             /* Groups attached to now. */
    int n_attaches;             /* Ever. */
    int attach_error;
    uint16_t last_mlid;         /* Of the last attach or detach. */
};

static void
changed(void *env_, struct ipoib_mcast_group *group)
{
    struct env *env = env_;

    env->n_changed++;
    ovs_assert(group->state != IPOIB_MCAST_JOINED || group->ah);
}

static void
removed(void *env_, struct ipoib_mcast_group *group)
{
    struct env *env = env_;

    env->n_removed++;
    ovs_assert(ovs_list_is_empty(&group->wait));
}

static int
attach(void *env_, const struct ib_gid *mgid, uint16_t mlid)
{
    struct env *env = env_;

    ovs_assert(ib_gid_is_multicast(mgid));
    ovs_assert(mlid >= 0xc000);
    if (env->attach_error) {
        return env->attach_error;
    }
    env->n_attached++;
    env->n_attaches++;
    env->last_mlid = mlid;
    return 0;
}

static int
detach(void *env_, const struct ib_gid *mgid OVS_UNUSED, uint16_t mlid)
{
    struct env *env = env_;

    ovs_assert(env->n_attached > 0);
    env->n_attached--;
    env->last_mlid = mlid;
    return 0;
}

static const struct ipoib_mcast_ops ops = {
    .changed = changed,
    .removed = removed,
    .attach = attach,
    .detach = detach,
};

static void
env_start(struct env *env, uint32_t cap_mask2)
{
    memset(env, 0, sizeof *env);
    env->sa = fake_sa_start(&env->t, cap_mask2);
    env->reaper = ipoib_ah_reaper_create(&fake_verbs);
    env->mcast = ipoib_mcast_create(&fake_verbs, NULL, env->sa, env->reaper,
                                    &ops, env);
    env->params.port_gid = fake_gid(PORT_GID);
    env->params.port = 1;
    env->params.pkey = 0xffff;
    env->params.lid = 3;
    env->params.port_mtu = 4;
    env->params.active = true;
    env->mdns = fake_gid(MDNS);
}

static void
env_stop(struct env *env)
{
    ipoib_mcast_destroy(env->mcast);
    CHECK_INT(env->n_attached, 0);
    fake_sa_stop(env->sa, env->t, env->reaper);
}

static void
run(void *env_)
{
    struct env *env = env_;

    ipoib_sa_run(env->sa, fake_now);
    ipoib_mcast_run(env->mcast, fake_now);
    ipoib_sa_run(env->sa, fake_now);
}

static void
pass(struct env *env, long long int ms)
{
    fake_pass(ms, run, env);
}

/* The request that is outstanding: there must be one, and only one. */
#define one_request(ENV) one_request_at(ENV, OVS_SOURCE_LOCATOR)
static const struct ib_sa_mad *
one_request_at(struct env *env, const char *where)
{
    run(env);
    return fake_only_sent(env->t, where);
}

/* Answers that request with 'status' and the record in 'hex', if any. */
#define answer(ENV, STATUS, HEX)                                        \
    answer_at(ENV, STATUS, HEX, OVS_SOURCE_LOCATOR)
static void
answer_at(struct env *env, uint16_t status, const char *hex,
          const char *where)
{
    struct ib_mcmember_record rec;
    const struct ib_sa_mad *req = one_request_at(env, where);

    if (hex) {
        fake_from_hex(hex, &rec, sizeof rec);
    }
    fake_answer(env->sa, req, status, hex ? &rec : NULL, sizeof rec);
    fake_clear(env->t);
    run(env);
}

static void
answer_rec(struct env *env, const struct ib_mcmember_record *rec)
{
    fake_answer(env->sa, one_request(env), 0, rec, sizeof *rec);
    fake_clear(env->t);
    run(env);
}

static struct ib_mcmember_record
record(const char *hex)
{
    struct ib_mcmember_record rec;

    fake_from_hex(hex, &rec, sizeof rec);
    return rec;
}

static void
join_broadcast(struct env *env)
{
    ipoib_mcast_set_params(env->mcast, &env->params);
    answer(env, 0, BROADCAST_ANSWER);
    ovs_assert(ipoib_mcast_broadcast(env->mcast));
}

static struct ibv_ah *
fast_ah(const struct env *env, const struct ib_gid *mgid)
{
    uint32_t slot = ipoib_mcast_lookup(env->mcast, mgid);
    struct ibv_ah *ah;

    ovs_assert(slot != IPOIB_SLOT_NONE);
    atomic_read_explicit(&ipoib_mcast_fast(env->mcast, slot)->ah, &ah,
                         memory_order_acquire);
    return ah;
}

/* The broadcast group, then another one, byte by byte. */
static void
test_join_leave(void)
{
    struct ipoib_mcast_group *b, *g;
    const struct ibv_ah_attr *attr;
    struct env env;

    env_start(&env, 0);
    ovs_assert(!ipoib_mcast_broadcast(env.mcast));
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    env.params.active = false;
    ipoib_mcast_set_params(env.mcast, &env.params);
    pass(&env, 10000);
    CHECK_INT(env.t->n_sent, 0);
    env.params.active = true;
    ipoib_mcast_set_params(env.mcast, &env.params);

    CHECK_JOIN(one_request(&env), 0x10083, BROADCAST_REQUEST);
    CHECK_INT(env.n_attached, 0);
    answer(&env, 0, BROADCAST_ANSWER);
    b = ipoib_mcast_broadcast(env.mcast);
    CHECK_INT(b->mlid, 0xc000);
    CHECK_INT(b->mtu, 4);
    CHECK_INT(b->rate, 3);
    CHECK_INT(b->qkey, 0xb1b);
    CHECK_INT(b->join_state, 1);
    CHECK_INT(b->attached, true);
    CHECK_INT(env.n_attached, 1);
    CHECK_INT(env.last_mlid, 0xc000);
    attr = fake_ah_attr(b->ah);
    CHECK_INT(attr->dlid, 0xc000);
    CHECK_INT(attr->is_global, 1);
    CHECK_INT(attr->static_rate, 3);
    ovs_assert(!memcmp(&attr->grh.dgid, &b->mgid, 16));
    ovs_assert(fast_ah(&env, &b->mgid) == b->ah);

    CHECK_INT(g->state, IPOIB_MCAST_JOINING);
    ovs_assert(!fast_ah(&env, &env.mdns));
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    answer(&env, 0, MDNS_ANSWER);
    CHECK_INT(g->state, IPOIB_MCAST_JOINED);
    CHECK_INT(g->mlid, 0xc002);
    CHECK_INT(g->joined, fake_now);
    CHECK_INT(env.n_attached, 2);
    ovs_assert(fast_ah(&env, &env.mdns) == g->ah);

    /* Two users: the first to go changes nothing. */
    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    pass(&env, 1000000);
    CHECK_INT(env.t->n_sent, 0);
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    CHECK_LEAVE(one_request(&env), MDNS_LEAVE);
    CHECK_INT(g->state, IPOIB_MCAST_LEAVING);
    CHECK_INT(env.n_attached, 1);
    CHECK_INT(env.last_mlid, 0xc002);
    ovs_assert(!fast_ah(&env, &env.mdns));
    CHECK_INT(env.n_removed, 0);
    answer(&env, 0, NULL);
    CHECK_INT(env.n_removed, 1);
    ovs_assert(!ipoib_mcast_find(env.mcast, &env.mdns));
    CHECK_INT(ipoib_mcast_lookup(env.mcast, &env.mdns), IPOIB_SLOT_NONE);

    /* The broadcast group stays, whatever its users say. */
    ipoib_mcast_want(env.mcast, &b->mgid, IPOIB_MCAST_RECV);
    ipoib_mcast_unwant(env.mcast, &b->mgid);
    ipoib_mcast_unwant(env.mcast, &b->mgid);
    pass(&env, 1000000);
    ovs_assert(ipoib_mcast_broadcast(env.mcast) == b);
    CHECK_INT(env.t->n_sent, 0);

    /* A unicast GID is no group. */
    ovs_assert(!ipoib_mcast_want(env.mcast, &env.params.port_gid, 1));
    env_stop(&env);
}

static void
test_refused(void)
{
    static const int pauses[] = { 1, 2, 4, 8, 16, 16 };
    struct ipoib_mcast_group *b;
    struct ib_gid mgid = fake_gid(BROADCAST);
    struct env env;

    /* The broadcast group is never made up. */
    env_start(&env, 0);
    ipoib_mcast_set_params(env.mcast, &env.params);
    b = ipoib_mcast_find(env.mcast, &mgid);
    for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
        CHECK_JOIN(one_request(&env), 0x10083, BROADCAST_REQUEST);
        answer(&env, i & 1 ? IB_SA_REQ_INVALID : IB_SA_INSUFFICIENT_COMPS,
               NULL);
        CHECK_INT(b->state, IPOIB_MCAST_IDLE);
        CHECK_INT(b->last_status, i & 1 ? 0x200 : 0x600);
        CHECK_INT(env.n_changed, i + 1);
        fake_now += pauses[i] * 1000 - 1;
        run(&env);
        CHECK_INT(env.t->n_sent, 0);
        fake_now++;
    }
    /* An event starts over. */
    answer(&env, IB_SA_REQ_INVALID, NULL);
    ipoib_mcast_rejoin_all(env.mcast);
    answer(&env, IB_SA_REQ_INVALID, NULL);
    pass(&env, 950);
    CHECK_INT(env.t->n_sent, 0);
    pass(&env, 50);
    answer(&env, 0, BROADCAST_ANSWER);
    CHECK_INT(b->state, IPOIB_MCAST_JOINED);
    CHECK_INT(b->last_status, 0);

    /* Nor does an SA that does not answer end it. */
    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    pass(&env, 7550);
    CHECK_INT(env.t->n_sent, 4);
    CHECK_INT(ipoib_mcast_find(env.mcast, &env.mdns)->last_error, ETIMEDOUT);
    pass(&env, 1000);
    CHECK_INT(env.t->n_sent, 5);
    env_stop(&env);
}

/* Answers that cannot be used. */
static void
test_mismatch(void)
{
    struct ib_gid mgid = fake_gid(BROADCAST);
    struct ib_mcmember_record rec = record(BROADCAST_ANSWER);
    struct ipoib_mcast_group *b, *g;
    struct env env;

    env_start(&env, 0);
    ipoib_mcast_set_params(env.mcast, &env.params);
    b = ipoib_mcast_find(env.mcast, &mgid);
    rec.mtu = 0x85;             /* More than the port's. */
    answer_rec(&env, &rec);
    CHECK_INT(b->state, IPOIB_MCAST_IDLE);
    CHECK_INT(b->last_error, EMSGSIZE);
    env.params.port_mtu = 5;    /* Which is news. */
    ipoib_mcast_set_params(env.mcast, &env.params);
    rec.mlid = htons(0xbfff);
    answer_rec(&env, &rec);
    CHECK_INT(b->last_error, EPROTO);
    pass(&env, 1000);
    rec.mlid = htons(0xc000);
    rec.mgid.raw[15] = 0;
    answer_rec(&env, &rec);
    CHECK_INT(b->last_error, EPROTO);
    pass(&env, 2000);
    rec.mgid.raw[15] = 0xff;
    fake_ah_error = EMFILE;
    answer_rec(&env, &rec);
    CHECK_INT(b->last_error, EMFILE);
    CHECK_INT(b->state, IPOIB_MCAST_IDLE);
    fake_ah_error = 0;
    pass(&env, 4000);
    answer_rec(&env, &rec);
    CHECK_INT(b->state, IPOIB_MCAST_JOINED);
    CHECK_INT(b->mtu, 5);

    /* A group with another Q_Key; the SA has it joined, so it is left. */
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    rec = record(MDNS_ANSWER);
    rec.qkey = htonl(0x1234);
    answer_rec(&env, &rec);
    CHECK_INT(g->state, IPOIB_MCAST_IDLE);
    CHECK_INT(g->last_error, EBADR);
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    CHECK_LEAVE(one_request(&env), MDNS_LEAVE);
    answer(&env, IB_SA_REQ_INVALID, NULL);
    CHECK_INT(env.n_removed, 1);
    env_stop(&env);
}

/* Send-only, then in full, then not at all: one leave of both states. */
static void
test_send_only(void)
{
    struct ib_mcmember_record rec = record(MDNS_ANSWER);
    struct ipoib_mcast_group *g;
    struct env env;

    env_start(&env, IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER);
    join_broadcast(&env);
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_SEND);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_SEND_ONLY);
    rec.scope_join = 8;
    answer_rec(&env, &rec);
    CHECK_INT(g->join_state, 8);
    CHECK_INT(g->attached, false);
    CHECK_INT(env.n_attached, 1); /* Broadcast. */
    ovs_assert(g->ah);

    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    CHECK_INT(g->state, IPOIB_MCAST_JOINED);
    CHECK_INT(g->attached, false);
    ovs_assert(g->ah);
    rec.scope_join = 9;
    answer_rec(&env, &rec);
    CHECK_INT(g->join_state, 9);
    CHECK_INT(g->attached, true);

    /* The receiver goes, the sender remains, then it goes, too. */
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    run(&env);
    CHECK_INT(g->attached, false);
    CHECK_INT(g->state, IPOIB_MCAST_JOINED);
    CHECK_INT(env.t->n_sent, 0);

    /* An event asks for what the SA has had of it, not for another state. */
    ipoib_mcast_rejoin_all(env.mcast);
    answer(&env, 0, BROADCAST_ANSWER);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    answer_rec(&env, &rec);
    CHECK_INT(g->attached, false);

    pass(&env, 60000);
    atomic_store_relaxed(&ipoib_mcast_fast(env.mcast, g->slot)->used,
                         fake_now / 1000);
    pass(&env, 119000);
    CHECK_INT(env.t->n_sent, 0);
    for (int i = 0; i < 21 && !env.t->n_sent; i++) {
        pass(&env, 50);
    }
    CHECK_LEAVE(one_request(&env), MDNS_LEAVE_BOTH);
    answer(&env, 0, NULL);
    CHECK_INT(env.n_removed, 1);

    /* Both at once need one join. */
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_SEND);
    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    answer(&env, 0, MDNS_ANSWER);
    CHECK_INT(g->join_state, 1);
    env_stop(&env);

    /* An SA that does not know the state 8. */
    env_start(&env, 0);
    join_broadcast(&env);
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_SEND);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    answer(&env, 0, MDNS_ANSWER);
    CHECK_INT(g->attached, false);
    env_stop(&env);
}

/* Send-only joins wait for the SA's capabilities, others do not. */
static void
test_unsettled(void)
{
    struct ipoib_mad_dest dest = { .lid = 5 };
    struct ipoib_mcast_group *g;
    struct env env;

    env_start(&env, IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER);
    join_broadcast(&env);
    ipoib_sa_set_dest(env.sa, &dest);
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_SEND);
    pass(&env, 100);
    CHECK_INT(env.t->n_sent, 1); /* ClassPortInfo. */
    CHECK_INT(g->state, IPOIB_MCAST_IDLE);
    pass(&env, 3000);
    CHECK_INT(env.t->n_sent, 4);
    CHECK_JOIN(fake_sent(env.t, 3), 0x173f7, MDNS_REQUEST);
    env_stop(&env);
}

/* After a restart of the SM the groups are gone. */
static void
test_rejoin(void)
{
    struct ib_mcmember_record rec;
    struct ipoib_mcast_group *b, *g;
    struct ibv_ah *ah;
    struct env env;

    env_start(&env, 0);
    join_broadcast(&env);
    b = ipoib_mcast_broadcast(env.mcast);
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, 0, MDNS_ANSWER);
    CHECK_INT(env.n_attaches, 2);
    ah = g->ah;

    /* All as it was: the AHs stay. */
    ipoib_mcast_rejoin_all(env.mcast);
    CHECK_JOIN(one_request(&env), 0x10083, BROADCAST_REQUEST);
    CHECK_INT(b->state, IPOIB_MCAST_JOINED);
    CHECK_INT(g->state, IPOIB_MCAST_JOINED);
    ovs_assert(fast_ah(&env, &env.mdns) == ah);
    answer(&env, 0, BROADCAST_ANSWER);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    answer(&env, 0, MDNS_ANSWER);
    ovs_assert(g->ah == ah);
    CHECK_INT(env.n_attaches, 2);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);

    /* The broadcast group, too, is gone: it is made as it was. */
    ipoib_mcast_rejoin_all(env.mcast);
    answer(&env, IB_SA_INSUFFICIENT_COMPS, NULL);
    CHECK_JOIN(one_request(&env), 0x173f7, BROADCAST_CREATE);
    answer(&env, 0, BROADCAST_ANSWER);
    /* And the other one has another MLID. */
    rec = record(MDNS_ANSWER);
    rec.mlid = htons(0xc00a);
    answer_rec(&env, &rec);
    CHECK_INT(env.n_attaches, 3);
    CHECK_INT(env.n_attached, 2);
    CHECK_INT(env.last_mlid, 0xc00a);
    CHECK_INT(g->mlid, 0xc00a);
    ovs_assert(g->ah != ah);
    ovs_assert(fast_ah(&env, &env.mdns) == g->ah);
    CHECK_INT(fake_n_ahs, 3);   /* One is retired. */

    /* Refused in that way, too, it is tried in the short way later. */
    ipoib_mcast_rejoin_all(env.mcast);
    answer(&env, IB_SA_INSUFFICIENT_COMPS, NULL);
    answer(&env, IB_SA_INSUFFICIENT_COMPS, NULL);
    CHECK_INT(b->state, IPOIB_MCAST_JOINED);
    CHECK_INT(env.t->n_sent, 0);
    pass(&env, 1000);
    CHECK_JOIN(one_request(&env), 0x10083, BROADCAST_REQUEST);

    /* An event while a join is under way asks again; the answer to the first
     * question does not count any more. */
    rec = record(BROADCAST_ANSWER);
    ipoib_mcast_rejoin_all(env.mcast);
    run(&env);
    CHECK_INT(env.t->n_sent, 2);
    fake_answer(env.sa, fake_sent(env.t, 0), 0, &rec, sizeof rec);
    CHECK_INT(b->again, true);

    /* Other parameters of the broadcast group are those of all. */
    rec.qkey = htonl(0x4711);
    rec.sl_flow_hop = htonl(0x51234507);
    rec.tclass = 0x99;
    fake_answer(env.sa, fake_sent(env.t, 1), 0, &rec, sizeof rec);
    fake_clear(env.t);
    CHECK_INT(b->again, false);
    CHECK_INT(b->qkey, 0x4711);
    CHECK_INT(fake_ah_attr(b->ah)->sl, 5);
    CHECK_INT(fake_ah_attr(b->ah)->grh.flow_label, 0x12345);
    CHECK_INT(fake_ah_attr(b->ah)->grh.hop_limit, 7);
    CHECK_INT(fake_ah_attr(b->ah)->grh.traffic_class, 0x99);
    CHECK_JOIN(one_request(&env), 0x173f7,
               MDNS PORT_GID "0000471100008499ffff83005123450701000000");
    env_stop(&env);
}

/* Wants that change while requests are under way: one at a time. */
static void
test_crossing(void)
{
    struct ipoib_mcast_group *g;
    struct env env;

    env_start(&env, 0);
    join_broadcast(&env);
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    answer(&env, 0, MDNS_ANSWER);
    CHECK_LEAVE(one_request(&env), MDNS_LEAVE);
    ovs_assert(ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV) == g);
    CHECK_LEAVE(one_request(&env), MDNS_LEAVE);
    answer(&env, 0, NULL);
    CHECK_JOIN(one_request(&env), 0x173f7, MDNS_REQUEST);
    answer(&env, 0, MDNS_ANSWER);
    CHECK_INT(g->state, IPOIB_MCAST_JOINED);
    CHECK_INT(g->attached, true);
    CHECK_INT(env.n_removed, 0);

    /* A refused leave was done before; so was one that nobody answers. */
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    answer(&env, IB_SA_REQ_INVALID, NULL);
    CHECK_INT(env.n_removed, 1);
    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, 0, MDNS_ANSWER);
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    pass(&env, 7600);
    CHECK_INT(env.n_removed, 2);
    fake_clear(env.t);

    /* One that was never joined goes without a word. */
    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, IB_SA_NO_RESOURCES, NULL);
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    CHECK_INT(env.n_removed, 3);
    env_stop(&env);
}

static void
test_attach_fails(void)
{
    struct ipoib_mcast_group *g;
    struct env env;

    env_start(&env, 0);
    join_broadcast(&env);
    env.attach_error = ENOMEM;
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, 0, MDNS_ANSWER);
    CHECK_INT(g->state, IPOIB_MCAST_JOINED);
    CHECK_INT(g->attached, false);
    CHECK_INT(g->last_error, ENOMEM);
    env.attach_error = 0;
    pass(&env, 1000);
    CHECK_INT(g->attached, true);
    CHECK_INT(g->last_error, 0);
    CHECK_INT(env.t->n_sent, 0);
    env_stop(&env);
}

/* A port that goes down and comes back, with another GID or P_Key. */
static void
test_params(void)
{
    struct ipoib_mcast_group *b, *g, *h;
    struct ib_gid other;
    struct env env;

    env_start(&env, 0);
    join_broadcast(&env);
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, 0, MDNS_ANSWER);
    other = env.mdns;
    other.raw[15] = 0xfc;
    h = ipoib_mcast_want(env.mcast, &other, IPOIB_MCAST_RECV);
    run(&env);
    CHECK_INT(h->state, IPOIB_MCAST_JOINING);

    env.params.active = false;
    ipoib_mcast_set_params(env.mcast, &env.params);
    CHECK_INT(h->state, IPOIB_MCAST_IDLE);
    CHECK_INT(g->state, IPOIB_MCAST_JOINED);
    fake_clear(env.t);
    ipoib_mcast_unwant(env.mcast, &other); /* Needs no leave. */
    pass(&env, 30000);
    CHECK_INT(env.t->n_sent, 0);
    CHECK_INT(env.n_removed, 1);

    env.params.active = true;
    env.params.port_gid.raw[15] = 4;
    ipoib_mcast_set_params(env.mcast, &env.params);
    CHECK_INT(one_request(&env)->data[31], 4);
    answer(&env, 0, BROADCAST_ANSWER);
    answer(&env, 0, MDNS_ANSWER);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    ipoib_mcast_set_params(env.mcast, &env.params); /* Nothing new. */
    run(&env);
    CHECK_INT(env.t->n_sent, 0);

    env.params.port_gid = fake_gid(PORT_GID);
    env.params.pkey = 0x8001;
    ipoib_mcast_set_params(env.mcast, &env.params);
    CHECK_INT(env.n_attached, 0);
    CHECK_INT(env.t->n_sent, 1);
    fake_clear(env.t);          /* The leave from before. */
    ovs_assert(!ipoib_mcast_broadcast(env.mcast));
    CHECK_INT(ipoib_mcast_lookup(env.mcast, &env.mdns), IPOIB_SLOT_NONE);
    other = fake_gid("ff12401b8001000000000000000000fb");
    ovs_assert(ipoib_mcast_find(env.mcast, &other) == g);
    CHECK_INT(ipoib_mcast_lookup(env.mcast, &other), g->slot);
    CHECK_INT(g->n_recv, 1);
    answer(&env, 0,
           "ff12401b8001000000000000ffffffff" PORT_GID
           "00000b1bc00184008001839200000000" "21000000");
    b = ipoib_mcast_broadcast(env.mcast);
    CHECK_INT(b->mlid, 0xc001);
    CHECK_JOIN(one_request(&env), 0x173f7,
               "ff12401b8001000000000000000000fb" PORT_GID
               "00000b1b00008400800183000000000001000000");
    env_stop(&env);
}

/* Limits: of requests at a time, and of groups. */
static void
test_many(void)
{
    struct ib_mcmember_record rec = record(MDNS_ANSWER);
    struct ib_gid mgid = fake_gid(MDNS);
    struct env env;
    size_t done = 0, total = 0;

    env_start(&env, 0);
    join_broadcast(&env);
    for (int i = 0; i < IPOIB_MCAST_MAX - 1; i++) {
        mgid.raw[13] = i >> 16;
        mgid.raw[14] = i >> 8;
        mgid.raw[15] = i;
        ovs_assert(ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV));
    }
    mgid.raw[12] = 1;
    ovs_assert(!ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV));
    CHECK_INT(ipoib_mcast_lookup(env.mcast, &mgid), IPOIB_SLOT_NONE);

    while (total < IPOIB_MCAST_MAX - 1) {
        run(&env);
        ovs_assert(env.t->n_sent > 0);
        ovs_assert(env.t->n_sent <= 64);
        for (done = 0; done < env.t->n_sent; done++, total++) {
            memcpy(&rec.mgid, fake_sent(env.t, done)->data, sizeof rec.mgid);
            fake_answer(env.sa, fake_sent(env.t, done), 0, &rec, sizeof rec);
        }
        fake_clear(env.t);
    }
    run(&env);
    CHECK_INT(env.n_attached, IPOIB_MCAST_MAX);
    for (int i = 0; i < IPOIB_MCAST_MAX - 1; i++) {
        mgid.raw[12] = 0;
        mgid.raw[13] = i >> 16;
        mgid.raw[14] = i >> 8;
        mgid.raw[15] = i;
        ovs_assert(fast_ah(&env, &mgid)
                   == ipoib_mcast_find(env.mcast, &mgid)->ah);
    }

    /* On the way out: a leave of each but the broadcast group, and nothing
     * is joined any more. */
    env.t->room = 2000;
    ipoib_mcast_leave_all(env.mcast);
    CHECK_INT(env.t->n_sent, 2000);
    CHECK_INT(env.n_attached, 0);
    for (size_t i = 0; i < 2000; i++) {
        CHECK_INT(fake_sent(env.t, i)->method, 0x15);
        CHECK_INT(fake_sent(env.t, i)->data[48], 1);
        ovs_assert(fake_sent(env.t, i)->data[12] != 0xff);
    }
    env.t->room = FAKE_MAX_SENT;
    fake_clear(env.t);
    pass(&env, 20000);
    CHECK_INT(env.t->n_sent, 0);
    env_stop(&env);
}

/* Slots are not used again while a reader may have them in hand. */
static void
test_slots(void)
{
    struct ipoib_mcast_group *g;
    struct ib_gid mgid;
    uint32_t slot;
    struct env env;

    env_start(&env, 0);
    mgid = env.mdns;
    slot = ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV)->slot;
    ipoib_mcast_unwant(env.mcast, &mgid);
    run(&env);
    CHECK_INT(env.n_removed, 1);
    mgid.raw[15]++;
    g = ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV);
    ovs_assert(g->slot != slot);
    pass(&env, 10000);
    mgid.raw[15]++;
    g = ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV);
    CHECK_INT(g->slot, slot);
    CHECK_INT(ipoib_mcast_lookup(env.mcast, &mgid), slot);
    CHECK_INT(ipoib_mcast_lookup(env.mcast, &env.mdns), IPOIB_SLOT_NONE);
    env_stop(&env);
}

/* A small SA, and a network before it that loses, duplicates and reorders. */

enum { N_GROUPS = 30 };
struct model {
    bool broadcast;             /* Exists. */
    uint8_t members[N_GROUPS];  /* Our JoinState. */
    uint16_t mlids[N_GROUPS];
    uint16_t next_mlid;
};

static void
model_restart(struct model *m, bool keep_broadcast)
{
    memset(m->members, 0, sizeof m->members);
    memset(m->mlids, 0, sizeof m->mlids);
    m->broadcast = keep_broadcast;
    m->next_mlid = 0xc001 + random_range(100);
}

static void
model_answer(struct model *m, struct ipoib_sa *sa, const struct ib_sa_mad *req)
{
    struct ib_mcmember_record rec;
    bool creates = req->comp_mask[1] == htonl(0x173f7);
    unsigned int i;

    memcpy(&rec, req->data, sizeof rec);
    i = rec.mgid.raw[15];
    if (i == 0xff) {
        CHECK_INT(req->method, IB_METHOD_SET);
        if (!m->broadcast && !creates) {
            fake_answer(sa, req, IB_SA_INSUFFICIENT_COMPS, NULL, 0);
        } else {
            m->broadcast = true;
            rec = record(BROADCAST_ANSWER);
            fake_answer(sa, req, 0, &rec, sizeof rec);
        }
        return;
    }

    ovs_assert(i < N_GROUPS);
    if (req->method == IB_METHOD_DELETE) {
        if (!m->members[i] || (rec.scope_join & 0xf) & ~m->members[i]) {
            fake_answer(sa, req, IB_SA_REQ_INVALID, NULL, 0);
        } else {
            /* To leave one of two states leaks an MLID. */
            CHECK_INT(rec.scope_join & 0xf, m->members[i]);
            m->members[i] = 0;
            m->mlids[i] = 0;
            fake_answer(sa, req, 0, NULL, 0);
        }
        return;
    }
    ovs_assert(creates);
    if (!m->mlids[i]) {
        m->mlids[i] = m->next_mlid++;
    }
    m->members[i] |= rec.scope_join & 0xf;
    rec.mlid = htons(m->mlids[i]);
    rec.scope_join = m->members[i];
    fake_answer(sa, req, 0, &rec, sizeof rec);
}

static struct ib_gid
model_mgid(int i)
{
    struct ib_gid mgid = fake_gid(MDNS);

    mgid.raw[15] = i;
    return mgid;
}

static void
test_random(void)
{
    enum { STEPS = 30000, CALM = 3000, MAX_FLYING = 1000 };
    struct { struct ib_sa_mad req; long long int at; } *flying;
    struct model m = { .broadcast = true, .next_mlid = 0xc001 };
    int users[N_GROUPS] = { 0 };
    int n_flying = 0;
    struct env env;

    flying = xmalloc(MAX_FLYING * sizeof *flying);
    env_start(&env, IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER);
    ipoib_mcast_set_params(env.mcast, &env.params);
    for (int step = 0; step < STEPS; step++) {
        bool calm = step >= STEPS - CALM;
        int i = random_range(N_GROUPS);
        struct ib_gid mgid = model_mgid(i);

        if (step == STEPS - CALM) {
            n_flying = 0;
            ipoib_mcast_rejoin_all(env.mcast);
        } else if (!calm && !random_range(4)) {
            if (!random_range(3)) {
                ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_SEND);
            } else if (random_range(2) && users[i] < 3) {
                users[i]++;
                ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV);
            } else if (users[i]) {
                users[i]--;
                ipoib_mcast_unwant(env.mcast, &mgid);
            }
        }
        if (!calm && !random_range(1000)) {
            /* The SM restarts, and says so. */
            model_restart(&m, random_range(2));
            ipoib_mcast_rejoin_all(env.mcast);
        }

        fake_now += 1 + random_range(50);
        run(&env);
        for (size_t j = 0; j < env.t->n_sent; j++) {
            int copies = calm ? 1 : (random_range(10) < 2 ? 0
                                     : 1 + !random_range(10));

            while (copies-- > 0 && n_flying < MAX_FLYING) {
                flying[n_flying].req = *fake_sent(env.t, j);
                flying[n_flying++].at = fake_now + random_range(50);
            }
        }
        fake_clear(env.t);
        for (int j = 0; j < n_flying; ) {
            if (fake_now >= flying[j].at) {
                if (calm || random_range(10)) {
                    model_answer(&m, env.sa, &flying[j].req);
                }
                flying[j] = flying[--n_flying];
            } else {
                j++;
            }
        }
    }

    ovs_assert(ipoib_mcast_broadcast(env.mcast));
    for (int i = 0; i < N_GROUPS; i++) {
        struct ib_gid mgid = model_mgid(i);
        struct ipoib_mcast_group *g = ipoib_mcast_find(env.mcast, &mgid);

        CHECK_INT(g ? g->n_recv : 0, users[i]);
        if (g) {
            CHECK_INT(g->state, IPOIB_MCAST_JOINED);
            CHECK_INT(g->again, false);
            CHECK_INT(g->join_state, m.members[i]);
            CHECK_INT(g->mlid, m.mlids[i]);
            CHECK_INT(g->attached, users[i] > 0);
            CHECK_INT(fake_ah_attr(g->ah)->dlid, m.mlids[i]);
            ovs_assert(fast_ah(&env, &mgid) == g->ah);
            ovs_assert(!users[i] || m.members[i] & 1);
        }
    }
    free(flying);
    env_stop(&env);
}

/* A port that is shared with the kernel's own IPoIB. */
static void
test_policy(void)
{
    struct ipoib_mcast_policy policy = { .refresh = true };
    struct ipoib_mcast_group *g;
    long long int start;
    struct env env;

    env_start(&env, 0);
    ipoib_mcast_set_policy(env.mcast, &policy);
    join_broadcast(&env);
    g = ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, 0, MDNS_ANSWER);
    start = fake_now;

    /* Each is joined again, with data flowing: between 45 and 60 s. */
    for (int i = 0; i < 2; i++) {
        while (!env.t->n_sent) {
            pass(&env, 50);
            ovs_assert(fake_now - start <= 60200);
        }
        ovs_assert(fake_now - start >= 45000);
        ovs_assert(g->state == IPOIB_MCAST_JOINED && g->ah && g->attached);
        answer(&env, 0,
               ib_gid_equals(&ALIGNED_CAST(const struct ib_mcmember_record *,
                                           fake_sent(env.t, 0)->data)->mgid,
                             &env.mdns) ? MDNS_ANSWER : BROADCAST_ANSWER);
    }

    /* Nothing is left. */
    ipoib_mcast_unwant(env.mcast, &env.mdns);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    ovs_assert(!ipoib_mcast_find(env.mcast, &env.mdns));
    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, 0, MDNS_ANSWER);
    ipoib_mcast_leave_all(env.mcast);
    CHECK_INT(env.t->n_sent, 0);
    env_stop(&env);

    /* Everything is left, and nothing refreshed. */
    env_start(&env, 0);
    policy = (struct ipoib_mcast_policy) { .leave = true,
                                           .leave_broadcast = true };
    ipoib_mcast_set_policy(env.mcast, &policy);
    join_broadcast(&env);
    ipoib_mcast_want(env.mcast, &env.mdns, IPOIB_MCAST_RECV);
    answer(&env, 0, MDNS_ANSWER);
    pass(&env, 200000);
    CHECK_INT(env.t->n_sent, 0);
    ipoib_mcast_leave_all(env.mcast);
    CHECK_INT(env.t->n_sent, 2);
    env_stop(&env);
}

static void
test_ipoib_mcast_main(int argc, char *argv[])
{
    set_program_name(argv[0]);
    fake_clock_start();
    random_set_seed(argc > 1 ? atoi(argv[1]) : 0x5a5a);
    test_join_leave();
    test_refused();
    test_mismatch();
    test_send_only();
    test_unsettled();
    test_rejoin();
    test_crossing();
    test_attach_fails();
    test_params();
    test_many();
    test_slots();
    test_random();
    test_policy();
    ovsrcu_exit();
}

OVSTEST_REGISTER("test-ipoib-mcast", test_ipoib_mcast_main);
