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

/* Groups that are not joined for a host that listens: for a router, for
 * senders, within limits; and how it is known which there are: the SA's table
 * and its reports. */

#include <config.h>
#undef NDEBUG
#include "ipoib-mcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipoib-sa-inform.h"
#include "ipoib-sa-rmpp.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "test-ipoib-fake.h"
#include "timeval.h"
#include "unaligned.h"
#include "util.h"

struct env {
    struct fake_transport *t;
    struct ipoib_sa *sa;
    struct ipoib_ah_reaper *reaper;
    struct ipoib_mcast *mcast;
    int n_attached;
};

static void
changed(void *env OVS_UNUSED, struct ipoib_mcast_group *group OVS_UNUSED)
{
}

static int
attach(void *env_, const struct ib_gid *mgid OVS_UNUSED,
       uint16_t mlid OVS_UNUSED)
{
    struct env *env = env_;

    env->n_attached++;
    return 0;
}

static int
detach(void *env_, const struct ib_gid *mgid OVS_UNUSED,
       uint16_t mlid OVS_UNUSED)
{
    struct env *env = env_;

    env->n_attached--;
    return 0;
}

static const struct ipoib_mcast_ops ops = {
    .changed = changed,
    .removed = changed,
    .attach = attach,
    .detach = detach,
};

static void
run(struct env *env)
{
    ipoib_sa_run(env->sa, fake_now);
    ipoib_mcast_run(env->mcast, fake_now);
    ipoib_sa_run(env->sa, fake_now);
}

/* Answers the only request, a join or a leave, with 'status' and what was
 * asked for; checks 'method' and 'join_state'. */
#define answer(ENV, METHOD, JOIN_STATE, STATUS)                         \
    answer_at(ENV, METHOD, JOIN_STATE, STATUS, OVS_SOURCE_LOCATOR)
static void
answer_at(struct env *env, uint8_t method, uint8_t join_state, uint16_t status,
          const char *where)
{
    struct ib_mcmember_record rec;
    const struct ib_sa_mad *req;

    run(env);
    if (env->t->n_sent != 1) {
        ovs_fatal(0, "%s: %"PRIuSIZE" requests", where, env->t->n_sent);
    }
    req = fake_sent(env->t, 0);
    memcpy(&rec, req->data, sizeof rec);
    if (req->method != method || (rec.scope_join & 0xf) != join_state) {
        ovs_fatal(0, "%s: method 0x%02x, join state %d", where, req->method,
                  rec.scope_join);
    }
    /* A non-member creates nothing, and asks for nothing. */
    if (method == IB_METHOD_SET && join_state == IB_JOIN_NON) {
        CHECK_INT(ntohl(req->comp_mask[1]), IB_MCM_MASK_JOIN_BROADCAST);
    }
    rec.mlid = htons(0xc001);
    rec.qkey = htonl(0xb1b);
    rec.mtu = 4;
    rec.rate = 3;
    fake_answer(env->sa, req, status, status ? NULL : &rec, sizeof rec);
    fake_clear(env->t);
    run(env);
}

static void
env_start(struct env *env)
{
    struct ipoib_mcast_params params = {
        .port_gid = fake_gid("fe800000000000000000000000100003"),
        .port = 1,
        .pkey = 0xffff,
        .lid = 3,
        .port_mtu = 4,
        .active = true,
    };

    memset(env, 0, sizeof *env);
    env->sa = fake_sa_start(&env->t, IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER);
    env->reaper = ipoib_ah_reaper_create(&fake_verbs);
    env->mcast = ipoib_mcast_create(&fake_verbs, NULL, env->sa, env->reaper,
                                    &ops, env);
    ipoib_mcast_set_params(env->mcast, &params);
    answer(env, IB_METHOD_SET, IB_JOIN_FULL, 0);
    CHECK_INT(env->n_attached, 1);
}

static void
env_stop(struct env *env)
{
    ipoib_mcast_destroy(env->mcast);
    ipoib_ah_reaper_destroy(env->reaper);
    ipoib_sa_destroy(env->sa);
    env->t->up.class->destroy(&env->t->up);
    CHECK_INT(fake_n_ahs, 0);
}

static struct ib_gid
group(uint32_t i)
{
    struct ib_gid mgid = fake_gid("ff12401bffff0000000000000f000000");

    mgid.raw[13] = i >> 16;
    mgid.raw[14] = i >> 8;
    mgid.raw[15] = i;
    return mgid;
}

/* A router receives as a non-member; with a host, and after it, the membership
 * is what it has to be. */
static void
test_router(void)
{
    struct ib_gid mgid = group(1);
    struct ipoib_mcast_stats stats;
    struct env env;

    env_start(&env);
    ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_ROUTER);
    ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_ROUTER);
    answer(&env, IB_METHOD_SET, IB_JOIN_NON, 0);
    CHECK_INT(env.n_attached, 2);
    ipoib_mcast_get_stats(env.mcast, &stats);
    CHECK_INT(stats.n_router, 1);

    /* A host reports the group, and leaves it. */
    ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV);
    answer(&env, IB_METHOD_SET, IB_JOIN_FULL, 0);
    CHECK_INT(env.n_attached, 2);
    ipoib_mcast_unwant(env.mcast, &mgid);
    answer(&env, IB_METHOD_DELETE, IB_JOIN_FULL, 0);
    answer(&env, IB_METHOD_SET, IB_JOIN_NON, 0);
    CHECK_INT(env.n_attached, 2);

    /* The group goes. */
    ipoib_mcast_unwant_router(env.mcast, &mgid);
    answer(&env, IB_METHOD_DELETE, IB_JOIN_NON, 0);
    CHECK_INT(env.n_attached, 1);
    ovs_assert(!ipoib_mcast_find(env.mcast, &mgid));

    /* One that is gone before it could be joined is forgotten. */
    ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_ROUTER);
    answer(&env, IB_METHOD_SET, IB_JOIN_NON, IB_SA_REQ_INVALID);
    ovs_assert(!ipoib_mcast_find(env.mcast, &mgid));

    /* A sender that stays when the group's listeners go joins by itself. */
    ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_ROUTER);
    answer(&env, IB_METHOD_SET, IB_JOIN_NON, 0);
    ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_SEND);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    ipoib_mcast_unwant_router(env.mcast, &mgid);
    answer(&env, IB_METHOD_DELETE, IB_JOIN_NON, IB_SA_REQ_INVALID);
    answer(&env, IB_METHOD_SET, IB_JOIN_SEND_ONLY_FULL, 0);
    CHECK_INT(env.n_attached, 1);
    ipoib_mcast_get_stats(env.mcast, &stats);
    CHECK_INT(stats.n_router, 0);
    env_stop(&env);
}

static size_t
n_groups_of(struct env *env, uint32_t sender, uint32_t n)
{
    size_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct ib_gid mgid = group(sender << 12 | i);
        const struct ipoib_mcast_group *g = ipoib_mcast_find(env->mcast,
                                                             &mgid);

        count += g && g->want & IPOIB_MCAST_SEND;
    }
    return count;
}

static bool
send_to(struct env *env, uint32_t sender, uint32_t i)
{
    struct ib_gid mgid = group(sender << 12 | i);

    return ipoib_mcast_want_send(env->mcast, &mgid, sender) != NULL;
}

/* A sender has its limit, all have one, and who has most gives. */
static void
test_limits(void)
{
    const struct ipoib_mcast_limits limits = {
        .groups = 100, .host_groups = 30
    };
    struct ipoib_mcast_stats stats;
    struct ib_gid mgid;
    struct env env;

    env_start(&env);
    ipoib_mcast_set_limits(env.mcast, &limits);
    for (uint32_t i = 0; i < 40; i++) {
        ovs_assert(send_to(&env, 1, i) == (i < 30));
    }
    ovs_assert(send_to(&env, 1, 0));
    CHECK_INT(n_groups_of(&env, 1, 40), 30);

    /* 20 more, which makes 50, half of all. */
    for (uint32_t i = 0; i < 20; i++) {
        ovs_assert(send_to(&env, 2, i));
    }
    CHECK_INT(n_groups_of(&env, 1, 40), 30);

    /* The third takes from the first, until they have the same. */
    for (uint32_t i = 0; i < 30; i++) {
        send_to(&env, 3, i);
    }
    ipoib_mcast_get_stats(env.mcast, &stats);
    CHECK_INT(stats.n_send, 50);
    ovs_assert(n_groups_of(&env, 1, 40) >= 16);
    ovs_assert(n_groups_of(&env, 2, 20) >= 16);
    ovs_assert(n_groups_of(&env, 3, 30) >= 16);
    ovs_assert(stats.n_send_refused > 10);

    /* A sender that has been at its limit uses another group after a pause. */
    fake_now += 20000;
    run(&env);
    fake_clear(env.t);
    for (uint32_t i = 100; i < 114; i++) {
        send_to(&env, 4, i);
    }
    CHECK_INT(n_groups_of(&env, 4, 120), 12);

    /* A router gets a quarter; who listens is not limited here. */
    for (uint32_t i = 0; i < 40; i++) {
        mgid = group(0x9000 + i);
        ovs_assert(!ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_ROUTER)
                   == (i >= 25));
    }
    mgid = group(0xa000);
    ovs_assert(ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV));
    env_stop(&env);
}

/* An SA that has no room for a group makes us do without idle ones. */
static void
test_no_resources(void)
{
    struct ib_gid mgid = group(5);
    struct env env;

    env_start(&env);
    ovs_assert(send_to(&env, 1, 1));
    answer(&env, IB_METHOD_SET, IB_JOIN_SEND_ONLY_FULL, 0);
    fake_now += 15000;
    ipoib_mcast_want(env.mcast, &mgid, IPOIB_MCAST_RECV);
    answer(&env, IB_METHOD_SET, IB_JOIN_FULL, IB_SA_NO_RESOURCES);
    answer(&env, IB_METHOD_DELETE, IB_JOIN_SEND_ONLY_FULL, 0);
    CHECK_INT(n_groups_of(&env, 1, 2), 0);
    fake_now += 2000;
    answer(&env, IB_METHOD_SET, IB_JOIN_FULL, 0);
    env_stop(&env);
}


/* Tables. */

static struct {
    int n_calls, error;
    uint16_t status;
    size_t n, size;
    uint8_t first, last;        /* First byte of the first and last record. */
} table;

static void
table_cb(void *aux OVS_UNUSED, int error, uint16_t status,
         const uint8_t *records, size_t n, size_t size)
{
    table.n_calls++;
    table.error = error;
    table.status = status;
    table.n = n;
    table.size = size;
    table.first = n ? records[0] : 0;
    table.last = n ? records[(n - 1) * size] : 0;
}

/* Segment 'number' (from 1 on) of the answer to 'req' of 'n' records of 56
 * bytes, each of which begins with its number. */
static void
send_segment(struct env *env, const struct ib_sa_mad *req, size_t n,
             uint32_t number)
{
    uint8_t data[56 * 256];
    size_t len = n * 56, ofs = (number - 1) * IB_SA_DATA_LEN;
    size_t size = MIN(len - ofs, IB_SA_DATA_LEN);
    struct ib_sa_mad mad = *req;

    memset(data, 0, sizeof data);
    for (size_t i = 0; i < n; i++) {
        data[i * 56] = i + 1;
    }
    mad.method = IB_METHOD_GET_TABLE_RESP;
    mad.rmpp_version = IB_RMPP_VERSION;
    mad.rmpp_type = IB_RMPP_TYPE_DATA;
    mad.rmpp_flags = (IB_RMPP_FLAG_ACTIVE
                      | (number == 1 ? IB_RMPP_FLAG_FIRST : 0)
                      | (ofs + size >= len ? IB_RMPP_FLAG_LAST : 0));
    mad.rmpp_data1 = htonl(number);
    mad.rmpp_data2 = htonl(size + 20);
    mad.attr_offset = htons(7);
    memcpy(mad.data, data + ofs, size);
    ipoib_sa_receive(env->sa, &mad, fake_sa_lid);
}

static struct ib_sa_mad
table_request(struct env *env)
{
    memset(&table, 0, sizeof table);
    ipoib_sa_send_get_table(env->sa, IB_ATTR_MCMEMBER_RECORD, IB_MCM_PKEY, "",
                            1, table_cb, NULL);
    run(env);
    CHECK_INT(env->t->n_sent, 1);
    return *fake_sent(env->t, 0);
}

static void
test_table(void)
{
    struct ib_sa_mad req, retry;
    struct env env;

    env_start(&env);

    /* 100 records are 28 segments; one comes twice, one too early. */
    req = table_request(&env);
    CHECK_INT(req.method, IB_METHOD_GET_TABLE);
    fake_clear(env.t);
    for (uint32_t i = 1; i <= 28; i++) {
        size_t n = env.t->n_sent;

        if (i == 5) {
            send_segment(&env, &req, 100, 7);
            send_segment(&env, &req, 100, 4);
            CHECK_INT(env.t->n_sent, n + 1);
        }
        CHECK_INT(table.n_calls, 0);
        send_segment(&env, &req, 100, i);
    }
    CHECK_INT(table.n_calls, 1);
    CHECK_INT(table.error, 0);
    CHECK_INT(table.n, 100);
    CHECK_INT(table.size, 56);
    CHECK_INT(table.first, 1);
    CHECK_INT(table.last, 100);
    /* Acknowledged: 1, 4 again, 17, 28. */
    CHECK_INT(env.t->n_sent, 4);
    CHECK_INT(fake_sent(env.t, 2)->method, IB_METHOD_GET_TABLE);
    CHECK_INT(fake_sent(env.t, 2)->rmpp_type, IB_RMPP_TYPE_ACK);
    CHECK_INT(ntohl(fake_sent(env.t, 2)->rmpp_data1), 17);
    CHECK_INT(ntohl(fake_sent(env.t, 2)->rmpp_data2), 33);
    CHECK_INT(ntohl(fake_sent(env.t, 3)->rmpp_data1), 28);
    fake_clear(env.t);

    /* The rest is lost: asked for again, from the start. */
    req = table_request(&env);
    send_segment(&env, &req, 10, 1);
    fake_clear(env.t);
    fake_now += 600;
    run(&env);
    CHECK_INT(env.t->n_sent, 1);
    retry = *fake_sent(env.t, 0);
    send_segment(&env, &req, 10, 2); /* Late. */
    for (uint32_t i = 1; i <= 3; i++) {
        send_segment(&env, &retry, 10, i);
    }
    CHECK_INT(table.n_calls, 1);
    CHECK_INT(table.n, 10);
    fake_clear(env.t);

    /* What there is after a timeout is told. */
    table_request(&env);
    for (int i = 0; i < 4; i++) {
        struct ib_sa_mad mad = *fake_sent(env.t, env.t->n_sent - 1);

        send_segment(&env, &mad, 10, 1);
        fake_clear(env.t);
        fake_now += 10000;
        run(&env);
    }
    CHECK_INT(table.n_calls, 1);
    CHECK_INT(table.error, ETIMEDOUT);
    CHECK_INT(table.n, 3);
    fake_clear(env.t);

    /* No records; a refusal; an abort. */
    req = table_request(&env);
    send_segment(&env, &req, 0, 1);
    CHECK_INT(table.n_calls, 1);
    CHECK_INT(table.n, 0);
    fake_clear(env.t);
    req = table_request(&env);
    req.method = IB_METHOD_GET_TABLE_RESP;
    req.status = htons(IB_SA_NO_RESOURCES);
    ipoib_sa_receive(env.sa, &req, fake_sa_lid);
    CHECK_INT(table.status, IB_SA_NO_RESOURCES);
    fake_clear(env.t);
    req = table_request(&env);
    req.method = IB_METHOD_GET_TABLE_RESP;
    req.rmpp_version = IB_RMPP_VERSION;
    req.rmpp_type = IB_RMPP_TYPE_ABORT;
    req.rmpp_flags = IB_RMPP_FLAG_ACTIVE;
    ipoib_sa_receive(env.sa, &req, fake_sa_lid);
    CHECK_INT(table.error, EPROTO);
    fake_clear(env.t);
    env_stop(&env);
}


/* Subscriptions. */

static int n_subscribed;

static void
subscribed(void *aux OVS_UNUSED)
{
    n_subscribed++;
}

static void
inform_answer(struct env *env, struct ipoib_inform *inform, uint16_t trap,
              uint16_t status)
{
    const struct ib_inform_info *info;

    ipoib_inform_run(inform, fake_now);
    run(env);
    CHECK_INT(env->t->n_sent, 1);
    CHECK_INT(fake_sent(env->t, 0)->method, IB_METHOD_SET);
    CHECK_INT(ntohs(fake_sent(env->t, 0)->attr_id), IB_ATTR_INFORM_INFO);
    info = ALIGNED_CAST(const struct ib_inform_info *,
                        fake_sent(env->t, 0)->data);
    CHECK_INT(info->subscribe, 1);
    CHECK_INT(ntohs(info->trap_number), trap);
    fake_answer(env->sa, fake_sent(env->t, 0), status, NULL, 0);
    fake_clear(env->t);
}

static void
test_inform(void)
{
    struct ipoib_inform *inform;
    struct env env;

    env_start(&env);
    inform = ipoib_inform_create(env.sa, subscribed, NULL);
    ipoib_inform_set_qpn(inform, 0x1234);
    ipoib_inform_run(inform, fake_now);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);

    ipoib_inform_want(inform, true);
    inform_answer(&env, inform, 66, 0);
    CHECK_INT(n_subscribed, 0);
    inform_answer(&env, inform, 67, IB_SA_NO_RESOURCES);
    ipoib_inform_run(inform, fake_now);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    fake_now += 2000;
    inform_answer(&env, inform, 67, 0);
    CHECK_INT(n_subscribed, 1);
    ovs_assert(ipoib_inform_is_active(inform));

    /* Another subnet manager; and by and by. */
    ipoib_inform_restart(inform);
    inform_answer(&env, inform, 66, 0);
    inform_answer(&env, inform, 67, 0);
    CHECK_INT(n_subscribed, 2);
    fake_now += 300000;
    inform_answer(&env, inform, 66, 0);
    inform_answer(&env, inform, 67, 0);
    CHECK_INT(n_subscribed, 3);

    /* The end is told, with the queue pair's number. */
    ipoib_inform_want(inform, false);
    CHECK_INT(env.t->n_sent, 2);
    CHECK_INT(ntohl(ALIGNED_CAST(const struct ib_inform_info *,
                                 fake_sent(env.t, 0)->data)->qpn_resp) >> 8,
              0x1234);
    fake_clear(env.t);
    ipoib_inform_destroy(inform);
    CHECK_INT(env.t->n_sent, 0);
    env_stop(&env);
}

static void
test_ipoib_groups_main(int argc, char *argv[] OVS_UNUSED)
{
    ovs_assert(argc == 1);
    fake_clock_start();
    test_router();
    test_limits();
    test_no_resources();
    test_table();
    test_inform();
    ovsrcu_exit();
}

OVSTEST_REGISTER("test-ipoib-groups", test_ipoib_groups_main);
