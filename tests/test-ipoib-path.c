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
#include "ipoib-path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ovs-rcu.h"
#include "ovstest.h"
#include "random.h"
#include "test-ipoib-fake.h"
#include "timeval.h"
#include "util.h"

/* Measured with OpenSM 3.3.23: a request of Linux's mask, and its answer. */
#define DGID "fe800000000000000000000000100005"
#define SGID "fe800000000000000000000000100003"
#define REQUEST                                                         \
    "0000000000000000" DGID SGID                                        \
    "000000000000000000" "01" "ffff" "000000000000000000000000"
#define ANSWER                                                          \
    "0000000000000000" DGID SGID                                        \
    "000400030000000000" "80" "ffff" "0000" "84839200000000000000"

/* All that a test needs. */
struct env {
    struct fake_transport *t;
    struct ipoib_sa *sa;
    struct ipoib_ah_reaper *reaper;
    struct ipoib_path_table *table;
    struct ipoib_path_params params;
    struct ib_gid dgid;
    int n_changed;
    struct ipoib_path *last_changed;
};

static void
changed(void *env_, struct ipoib_path *path)
{
    struct env *env = env_;

    env->n_changed++;
    env->last_changed = path;
    ovs_assert((path->state == IPOIB_PATH_READY) == (path->ah != NULL));
}

static void
env_start(struct env *env)
{
    memset(env, 0, sizeof *env);
    env->sa = fake_sa_start(&env->t, 0);
    env->reaper = ipoib_ah_reaper_create(&fake_verbs);
    env->table = ipoib_path_table_create(&fake_verbs, NULL, env->sa,
                                         env->reaper, changed, env);
    env->params.sgid = fake_gid(SGID);
    env->params.port = 1;
    env->params.lid = 3;
    env->params.pkey = 0xffff;
    env->params.port_mtu = 5;
    env->dgid = fake_gid(DGID);
    ipoib_path_table_set_params(env->table, &env->params);
}

static void
env_stop(struct env *env)
{
    ipoib_path_table_destroy(env->table);
    fake_sa_stop(env->sa, env->t, env->reaper);
}

static void
run(void *env_)
{
    struct env *env = env_;

    ipoib_sa_run(env->sa, fake_now);
    ipoib_path_table_run(env->table, fake_now);
    ipoib_sa_run(env->sa, fake_now);
}

static void
pass(struct env *env, long long int ms)
{
    fake_pass(ms, run, env);
}

static struct ib_path_record
good_record(void)
{
    struct ib_path_record rec;

    fake_from_hex(ANSWER, &rec, sizeof rec);
    return rec;
}

/* Answers the one request that is outstanding. */
#define answer(ENV, STATUS, REC) \
    answer_at(ENV, STATUS, REC, OVS_SOURCE_LOCATOR)
static void
answer_at(struct env *env, uint16_t status, const struct ib_path_record *rec,
          const char *where)
{
    run(env);
    fake_answer(env->sa, fake_only_sent(env->t, where), status, rec,
                rec ? sizeof *rec : 0);
    fake_clear(env->t);
}

static struct ipoib_path *
ready_path(struct env *env)
{
    struct ib_path_record rec = good_record();
    struct ipoib_path *path = ipoib_path_ref(env->table, &env->dgid);

    answer(env, 0, &rec);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    return path;
}

static void
test_resolve(void)
{
    struct ib_path_record rec = good_record();
    const struct ibv_ah_attr *attr;
    struct ipoib_path *path;
    struct env env;

    env_start(&env);
    path = ipoib_path_ref(env.table, &env.dgid);
    ovs_assert(ipoib_path_ref(env.table, &env.dgid) == path);
    CHECK_INT(path->n_users, 2);
    CHECK_INT(path->state, IPOIB_PATH_RESOLVING);
    run(&env);
    run(&env);
    CHECK_INT(env.t->n_sent, 1); /* One query a DGID. */
    fake_check_request(fake_sent(env.t, 0), 0x01, 0x0035, 0x340c, REQUEST,
                       OVS_SOURCE_LOCATOR);
    answer(&env, 0, &rec);
    CHECK_INT(env.n_changed, 1);
    ovs_assert(env.last_changed == path);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    CHECK_INT(path->dlid, 4);
    CHECK_INT(path->mtu, 4);
    CHECK_INT(path->rate, 3);
    CHECK_INT(path->resolved, fake_now);
    CHECK_INT(path->stale, false);
    attr = fake_ah_attr(path->ah);
    CHECK_INT(attr->dlid, 4);
    CHECK_INT(attr->sl, 0);
    CHECK_INT(attr->static_rate, 3);
    CHECK_INT(attr->src_path_bits, 0);
    CHECK_INT(attr->is_global, 0);
    CHECK_INT(attr->port_num, 1);

    /* Nothing is asked without a reason. */
    pass(&env, 3600 * 1000);
    CHECK_INT(env.t->n_sent, 0);
    env_stop(&env);
}

/* All that an answer can say. */
static void
test_attributes(void)
{
    struct ib_path_record rec = good_record();
    const struct ibv_ah_attr *attr;
    struct ipoib_path *path;
    struct env env;

    env_start(&env);
    env.params.lid = 0x20;
    env.params.lmc = 2;
    env.params.tclass = 0x77;
    env.params.pkey = 0x8005;
    env.params.port_mtu = 4;
    ipoib_path_table_set_params(env.table, &env.params);

    path = ipoib_path_ref(env.table, &env.dgid);
    run(&env);
    CHECK_INT(fake_sent(env.t, 0)->data[48], 0x77);
    CHECK_INT(fake_sent(env.t, 0)->data[50], 0x80);
    CHECK_INT(fake_sent(env.t, 0)->data[51], 0x05);

    rec.slid = htons(0x23);
    rec.qos_sl = htons(0x1235);
    rec.mtu = 0x85;
    rec.rate = 0x90;
    rec.raw_flow_hop = htonl(0xf0000000 | 0xabcde << 8 | 64);
    rec.tclass = 0x55;
    rec.dgid.raw[15] = 0x99;    /* The SA may name another one. */
    answer(&env, 0, &rec);
    attr = fake_ah_attr(path->ah);
    CHECK_INT(attr->src_path_bits, 3);
    CHECK_INT(attr->sl, 5);
    CHECK_INT(path->sl, 5);
    CHECK_INT(attr->static_rate, 0x10);
    CHECK_INT(attr->is_global, 1);
    CHECK_INT(attr->grh.flow_label, 0xabcde);
    CHECK_INT(attr->grh.hop_limit, 64);
    CHECK_INT(attr->grh.traffic_class, 0x55);
    CHECK_INT(attr->grh.sgid_index, 0);
    CHECK_INT(attr->grh.dgid.raw[15], 0x99);
    CHECK_INT(path->hop_limit, 64);
    CHECK_INT(path->mtu, 4);    /* The port's, which is smaller. */
    ovs_assert(ib_gid_equals(&path->dgid, &env.dgid));
    env_stop(&env);
}

/* Paths of a class: the SL is asked for, and no other taken; a traffic class
 * has a GRH. */
static void
test_class(void)
{
    struct ib_path_record rec = good_record();
    const struct ibv_ah_attr *attr;
    struct ipoib_path *path;
    struct env env;

    env_start(&env);
    env.params.wants_sl = true;
    env.params.sl = 3;
    ipoib_path_table_set_params(env.table, &env.params);
    path = ipoib_path_ref(env.table, &env.dgid);
    run(&env);
    CHECK_INT(ntohl(fake_sent(env.t, 0)->comp_mask[1]),
              IB_PR_MASK_IPOIB | IB_PR_SL);
    CHECK_INT(fake_sent(env.t, 0)->data[53], 3);

    rec.qos_sl = htons(5);
    answer(&env, 0, &rec);
    CHECK_INT(path->state, IPOIB_PATH_FAILED);
    CHECK_INT(path->last_error, EPROTO);
    pass(&env, 1000);
    ipoib_path_poke(path);
    rec.qos_sl = htons(3);
    answer(&env, 0, &rec);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    CHECK_INT(path->sl, 3);
    CHECK_INT(fake_ah_attr(path->ah)->sl, 3);
    CHECK_INT(fake_ah_attr(path->ah)->is_global, 0);

    env.params.wants_sl = false;
    env.params.sets_tclass = true;
    env.params.grh_tclass = 0xb8;
    ipoib_path_table_set_params(env.table, &env.params);
    run(&env);
    CHECK_INT(ntohl(fake_sent(env.t, 0)->comp_mask[1]), IB_PR_MASK_IPOIB);
    rec.qos_sl = htons(1);
    answer(&env, 0, &rec);
    attr = fake_ah_attr(path->ah);
    CHECK_INT(attr->sl, 1);
    CHECK_INT(attr->is_global, 1);
    CHECK_INT(attr->grh.traffic_class, 0xb8);
    CHECK_INT(path->tclass, 0xb8);
    env_stop(&env);
}

/* The same answer keeps the AH, another one replaces it. */
static void
test_refresh(void)
{
    struct ib_path_record rec = good_record();
    struct ipoib_path *path;
    struct ibv_ah *ah;
    struct env env;

    env_start(&env);
    path = ready_path(&env);
    ah = path->ah;
    env.n_changed = 0;

    ipoib_path_refresh_all(env.table);
    CHECK_INT(path->stale, true);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    ovs_assert(path->ah == ah);
    answer(&env, 0, &rec);
    CHECK_INT(path->stale, false);
    ovs_assert(path->ah == ah);
    CHECK_INT(env.n_changed, 0);

    /* Only the MTU: the AH stays, but others must know. */
    rec.mtu = 0x83;
    ipoib_path_refresh_all(env.table);
    answer(&env, 0, &rec);
    ovs_assert(path->ah == ah);
    CHECK_INT(path->mtu, 3);
    CHECK_INT(env.n_changed, 1);

    rec.dlid = htons(44);
    ipoib_path_refresh_all(env.table);
    answer(&env, 0, &rec);
    ovs_assert(path->ah != ah);
    CHECK_INT(fake_ah_attr(path->ah)->dlid, 44);
    CHECK_INT(env.n_changed, 2);
    CHECK_INT(fake_n_ahs, 2);   /* The old one is retired. */

    /* A refresh drops a query that asks with old parameters. */
    ipoib_path_refresh_all(env.table);
    run(&env);
    env.params.pkey = 0x8001;
    ipoib_path_table_set_params(env.table, &env.params);
    run(&env);
    CHECK_INT(env.t->n_sent, 2);
    CHECK_INT(fake_sent(env.t, 1)->data[51], 0x01);
    fake_answer(env.sa, fake_sent(env.t, 0), IB_SA_NO_RECORDS, NULL, 0);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    fake_answer(env.sa, fake_sent(env.t, 1), IB_SA_NO_RECORDS, NULL, 0);
    fake_clear(env.t);

    /* Soon after an event the SA may not know all again; then it does. */
    for (int i = 0; i < 3; i++) {
        CHECK_INT(path->state, IPOIB_PATH_READY);
        CHECK_INT(path->stale, true);
        CHECK_INT(env.n_changed, 2);
        pass(&env, 1000);
        answer(&env, IB_SA_NO_RECORDS, NULL);
    }
    CHECK_INT(path->state, IPOIB_PATH_FAILED);
    ovs_assert(!path->ah);
    CHECK_INT(path->last_status, IB_SA_NO_RECORDS);
    CHECK_INT(env.n_changed, 3);
    env_stop(&env);
}

/* Parameters that cannot wait for the SA. */
static void
test_params(void)
{
    struct ib_path_record rec = good_record();
    struct ipoib_path *path;
    struct env env;

    env_start(&env);
    env.params.lmc = 1;
    env.params.lid = 2;
    ipoib_path_table_set_params(env.table, &env.params);
    path = ready_path(&env);
    CHECK_INT(fake_ah_attr(path->ah)->src_path_bits, 1);
    env.n_changed = 0;

    env.params.needs_grh = true;
    env.params.lmc = 0;
    env.params.lid = 3;
    env.params.port_mtu = 3;
    ipoib_path_table_set_params(env.table, &env.params);
    CHECK_INT(env.n_changed, 1);
    CHECK_INT(fake_ah_attr(path->ah)->src_path_bits, 0);
    CHECK_INT(fake_ah_attr(path->ah)->is_global, 1);
    ovs_assert(!memcmp(&fake_ah_attr(path->ah)->grh.dgid, &env.dgid, 16));
    CHECK_INT(path->mtu, 3);
    CHECK_INT(path->stale, true);
    answer(&env, 0, &rec);
    CHECK_INT(env.n_changed, 1);
    CHECK_INT(path->stale, false);

    /* The same once more is nothing new. */
    ipoib_path_table_set_params(env.table, &env.params);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    env_stop(&env);
}

static void
test_hold_down(void)
{
    static const int pauses[] = { 1, 2, 4, 8, 16, 16, 16 };
    struct ib_path_record rec = good_record();
    struct ipoib_path *path;
    struct env env;

    env_start(&env);
    path = ipoib_path_ref(env.table, &env.dgid);
    for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
        answer(&env, IB_SA_NO_RECORDS, NULL);
        CHECK_INT(path->state, IPOIB_PATH_FAILED);
        CHECK_INT(env.n_changed, 2 * i + 1);
        fake_now += pauses[i] * 1000 - 1;
        ipoib_path_poke(path);
        run(&env);
        CHECK_INT(env.t->n_sent, 0);
        fake_now++;
        run(&env);              /* By itself nothing is asked. */
        CHECK_INT(env.t->n_sent, 0);
        ipoib_path_poke(path);
        CHECK_INT(path->state, IPOIB_PATH_RESOLVING);
    }
    /* Success makes the next failure the first one again. */
    answer(&env, 0, &rec);
    pass(&env, 3000);
    ipoib_path_suspect(path);
    answer(&env, IB_SA_NO_RECORDS, NULL);
    CHECK_INT(path->state, IPOIB_PATH_FAILED);
    pass(&env, 1000);
    ipoib_path_poke(path);
    answer(&env, IB_SA_NO_RECORDS, NULL);
    /* An event ends the hold-down. */
    ipoib_path_refresh_all(env.table);
    answer(&env, 0, &rec);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    env_stop(&env);
}

/* Without an answer a path that works goes on to, and is asked for again. */
static void
test_timeout(void)
{
    struct ib_path_record rec = good_record();
    struct ipoib_path *path, *other;
    struct ib_gid gid;
    struct ibv_ah *ah;
    struct env env;

    env_start(&env);
    path = ready_path(&env);
    ah = path->ah;
    env.n_changed = 0;
    ipoib_path_refresh_all(env.table);
    pass(&env, 7600);
    CHECK_INT(env.t->n_sent, 4);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    CHECK_INT(path->stale, true);
    CHECK_INT(path->last_error, ETIMEDOUT);
    ovs_assert(path->ah == ah);
    pass(&env, 1000);           /* Hold-down. */
    CHECK_INT(env.t->n_sent, 5);
    fake_answer(env.sa, fake_sent(env.t, 4), 0, &rec, sizeof rec);
    CHECK_INT(path->stale, false);
    CHECK_INT(env.n_changed, 0);
    fake_clear(env.t);

    /* So it does when the SA is short of something. */
    ipoib_path_refresh_all(env.table);
    answer(&env, IB_SA_NO_RESOURCES, NULL);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    CHECK_INT(path->stale, true);
    pass(&env, 1000);
    answer(&env, 0, &rec);
    CHECK_INT(path->stale, false);

    /* One that never was fails. */
    gid = env.dgid;
    gid.raw[15]++;
    other = ipoib_path_ref(env.table, &gid);
    pass(&env, 7600);
    CHECK_INT(other->state, IPOIB_PATH_FAILED);
    CHECK_INT(other->last_error, ETIMEDOUT);
    ovs_assert(env.last_changed == other);
    env_stop(&env);
}

static void
test_suspect(void)
{
    struct ib_path_record rec = good_record();
    struct ipoib_path *path;
    struct env env;

    env_start(&env);
    path = ready_path(&env);
    ipoib_path_suspect(path);   /* Asked just now. */
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    for (int i = 1; i <= 5; i++) {
        fake_now += 999;
        ipoib_path_suspect(path);
        run(&env);
        CHECK_INT(env.t->n_sent, 0);
        fake_now += 1;
        for (int j = 0; j < 100; j++) {
            ipoib_path_suspect(path);
            run(&env);
        }
        CHECK_INT(path->stale, true);
        answer(&env, 0, &rec);
        CHECK_INT(path->stale, false);
    }
    CHECK_INT(fake_n_ahs, 1);
    env_stop(&env);
}

static void
test_bad_answers(void)
{
    struct ib_path_record rec = good_record();
    struct ib_path_record bad;
    struct ipoib_path *path;
    struct env env;

    env_start(&env);
    path = ipoib_path_ref(env.table, &env.dgid);
    bad = rec;
    bad.dlid = 0;
    answer(&env, 0, &bad);
    CHECK_INT(path->state, IPOIB_PATH_FAILED);
    CHECK_INT(path->last_error, EPROTO);
    for (int i = 0; i < 3; i++) {
        bad = rec;
        if (i == 0) {
            bad.dlid = htons(0xc000);
        } else if (i == 1) {
            bad.mtu = 0x80;
        } else {
            bad.mtu = 0x86;
        }
        ipoib_path_refresh_all(env.table);
        answer(&env, 0, &bad);
        CHECK_INT(path->last_error, EPROTO);
    }

    /* No AH to be had: kept if there is one, else failed. */
    fake_ah_error = ENOMEM;
    ipoib_path_refresh_all(env.table);
    answer(&env, 0, &rec);
    CHECK_INT(path->state, IPOIB_PATH_FAILED);
    CHECK_INT(path->last_error, ENOMEM);
    fake_ah_error = 0;
    ipoib_path_refresh_all(env.table);
    answer(&env, 0, &rec);
    fake_ah_error = ENOMEM;
    rec.dlid = htons(7);
    ipoib_path_refresh_all(env.table);
    answer(&env, 0, &rec);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    CHECK_INT(path->stale, true);
    CHECK_INT(path->dlid, 4);
    fake_ah_error = 0;
    pass(&env, 1000);
    answer(&env, 0, &rec);
    CHECK_INT(path->dlid, 7);
    CHECK_INT(path->stale, false);
    env_stop(&env);
}

static void
count_path(const struct ipoib_path *path OVS_UNUSED, void *n_)
{
    int *n = n_;

    ++*n;
}

static void
test_unused(void)
{
    struct ipoib_path *path;
    struct env env;
    int n = 0;

    env_start(&env);
    path = ready_path(&env);
    ipoib_path_unref(path);
    pass(&env, 59000);
    ovs_assert(ipoib_path_ref(env.table, &env.dgid) == path);
    CHECK_INT(path->state, IPOIB_PATH_READY);
    pass(&env, 120000);
    ipoib_path_for_each(env.table, count_path, &n);
    CHECK_INT(n, 1);
    ipoib_path_unref(path);
    pass(&env, 61000);
    n = 0;
    ipoib_path_for_each(env.table, count_path, &n);
    CHECK_INT(n, 0);

    /* One that goes while it is asked for. */
    path = ipoib_path_ref(env.table, &env.dgid);
    ipoib_path_unref(path);
    for (int i = 0; i < 70; i++) {
        fake_now += 1000;
        ipoib_path_table_run(env.table, fake_now);
    }
    n = 0;
    ipoib_path_for_each(env.table, count_path, &n);
    CHECK_INT(n, 0);
    run(&env);
    CHECK_INT(env.t->n_sent, 0);
    env_stop(&env);
}

/* Many paths: a window at a time, those that somebody waits for first. */
static void
test_many(void)
{
    enum { N = 1000, WINDOW = 32 };
    struct ib_path_record rec = good_record();
    struct ipoib_path *paths[N], *urgent;
    struct ib_gid gid;
    struct env env;
    size_t n = 0;

    env_start(&env);
    for (int i = 0; i < N; i++) {
        gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 1000 + i);
        paths[i] = ipoib_path_ref(env.table, &gid);
    }
    while (n < N) {
        run(&env);
        ovs_assert(env.t->n_sent - n <= WINDOW);
        ovs_assert(env.t->n_sent > n);
        while (n < env.t->n_sent) {
            fake_answer(env.sa, fake_sent(env.t, n++), 0, &rec, sizeof rec);
        }
    }
    for (int i = 0; i < N; i++) {
        CHECK_INT(paths[i]->state, IPOIB_PATH_READY);
    }

    fake_clear(env.t);
    ipoib_path_refresh_all(env.table);
    run(&env);
    CHECK_INT(env.t->n_sent, WINDOW);
    urgent = ipoib_path_ref(env.table, &env.dgid);
    fake_answer(env.sa, fake_sent(env.t, 0), 0, &rec, sizeof rec);
    run(&env);
    CHECK_INT(env.t->n_sent, WINDOW + 1);
    fake_answer(env.sa, fake_sent(env.t, WINDOW), 0, &rec, sizeof rec);
    CHECK_INT(urgent->state, IPOIB_PATH_READY);
    env_stop(&env);
}

/* An SA that loses, refuses and changes its mind, and users that come and go:
 * in the end, when it is well, each path that is used is as the SA says. */
static void
test_random(void)
{
    enum { N = 40, STEPS = 20000 };
    struct ipoib_path *paths[N] = { NULL };
    uint16_t lids[N];
    struct env env;

    env_start(&env);
    for (int i = 0; i < N; i++) {
        lids[i] = 10 + i;
    }
    for (int step = 0; step < STEPS; step++) {
        bool calm = step >= STEPS - 1000;
        int i = random_range(N);

        if (step == STEPS - 1000) {
            ipoib_path_refresh_all(env.table);
        } else if (!calm) {
            if (!paths[i]) {
                struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, i);

                paths[i] = ipoib_path_ref(env.table, &gid);
            } else if (!random_range(4)) {
                ipoib_path_unref(paths[i]);
                paths[i] = NULL;
            } else if (random_range(2)) {
                ipoib_path_poke(paths[i]);
            } else {
                ipoib_path_suspect(paths[i]);
            }
            if (!random_range(500)) {
                ipoib_path_refresh_all(env.table);
            }
            if (!random_range(50)) {
                lids[i] = 10 + random_range(1000);
            }
        }

        fake_now += 1 + random_range(100);
        run(&env);
        for (size_t j = 0; j < env.t->n_sent; j++) {
            struct ib_path_record rec;
            unsigned int what = calm ? 99 : random_range(100);

            memcpy(&rec, fake_sent(env.t, j)->data, sizeof rec);
            rec.mtu = 0x84;
            rec.rate = 0x83;
            rec.dlid = htons(lids[rec.dgid.raw[15]]);
            if (what >= 30) {
                fake_answer(env.sa, fake_sent(env.t, j), 0, &rec, sizeof rec);
            } else if (what >= 20) {
                fake_answer(env.sa, fake_sent(env.t, j), IB_SA_NO_RECORDS,
                            NULL, 0);
            }
        }
        fake_clear(env.t);
    }
    for (int i = 0; i < N; i++) {
        if (paths[i]) {
            CHECK_INT(paths[i]->n_users, 1);
            CHECK_INT(paths[i]->state, IPOIB_PATH_READY);
            CHECK_INT(paths[i]->stale, false);
            CHECK_INT(paths[i]->dlid, lids[i]);
            CHECK_INT(fake_ah_attr(paths[i]->ah)->dlid, lids[i]);
        }
    }
    env_stop(&env);
}

/* Paths with the same attributes have one AH, which lives as long as one of
 * them needs it. */
static void
test_sharing(void)
{
    struct ib_path_record rec = good_record();
    struct ipoib_path *paths[3];
    struct ibv_ah *shared;
    struct env env;

    env_start(&env);
    for (int i = 0; i < 3; i++) {
        struct ib_gid gid = env.dgid;

        gid.raw[15] ^= i;
        rec.dgid = gid;
        rec.dlid = htons(i == 2 ? 5 : 4);
        paths[i] = ipoib_path_ref(env.table, &gid);
        answer(&env, 0, &rec);
    }
    shared = paths[0]->ah;
    ovs_assert(shared && paths[1]->ah == shared && paths[2]->ah != shared);
    CHECK_INT(ipoib_ah_count(env.reaper), 2);
    CHECK_INT(fake_n_ahs, 2);

    /* With a GRH, the GIDs differ. */
    env.params.needs_grh = true;
    ipoib_path_table_set_params(env.table, &env.params);
    ovs_assert(paths[0]->ah != shared && paths[0]->ah != paths[1]->ah);
    CHECK_INT(ipoib_ah_count(env.reaper), 3);
    env.params.needs_grh = false;
    ipoib_path_table_set_params(env.table, &env.params);
    ovs_assert(paths[0]->ah == paths[1]->ah);
    CHECK_INT(ipoib_ah_count(env.reaper), 2);
    env_stop(&env);
    CHECK_INT(fake_n_ahs, 0);
}

/* An AH ends IPOIB_AH_REST after the grace period after its retirement, and
 * not before. */
static void
test_reaper(void)
{
    struct ipoib_ah_reaper *reaper = ipoib_ah_reaper_create(&fake_verbs);
    struct ibv_ah_attr attr = { .dlid = 1 };
    long long int start, graced;

    ipoib_ah_retire(reaper, NULL);
    start = time_msec();
    ipoib_ah_retire(reaper, fake_verbs.create_ah(NULL, &attr));
    /* No grace period yet: time alone does not do. */
    ipoib_ah_reaper_run(reaper, start + 100 * IPOIB_AH_REST);
    CHECK_INT(fake_n_ahs, 1);

    ovsrcu_barrier();
    graced = time_msec();
    ipoib_ah_reaper_run(reaper, start + IPOIB_AH_REST - 1);
    CHECK_INT(fake_n_ahs, 1);
    ipoib_ah_retire(reaper, fake_verbs.create_ah(NULL, &attr));
    ipoib_ah_reaper_run(reaper, graced + IPOIB_AH_REST);
    CHECK_INT(fake_n_ahs, 1);   /* The second one. */
    ipoib_ah_reaper_destroy(reaper);
    CHECK_INT(fake_n_ahs, 0);
    ovsrcu_barrier();
}

static void
test_ipoib_path_main(int argc, char *argv[])
{
    set_program_name(argv[0]);
    fake_clock_start();
    random_set_seed(argc > 1 ? atoi(argv[1]) : 0x5a5a);
    test_resolve();
    test_attributes();
    test_class();
    test_refresh();
    test_params();
    test_hold_down();
    test_timeout();
    test_suspect();
    test_bad_answers();
    test_unused();
    test_many();
    test_random();
    test_sharing();
    test_reaper();
    ovsrcu_exit();
}

OVSTEST_REGISTER("test-ipoib-path", test_ipoib_path_main);
