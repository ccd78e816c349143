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
#include "ipoib-sa.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ovstest.h"
#include "random.h"
#include "test-ipoib-fake.h"
#include "unaligned.h"
#include "util.h"

/* What became of a request. */
struct result {
    int n;                      /* Calls. */
    int error;
    uint16_t status;
};

static void
done(void *result_, int error, uint16_t status, const struct ib_sa_mad *mad)
{
    struct result *result = result_;

    ovs_assert(!error == (mad != NULL));
    result->n++;
    result->error = error;
    result->status = status;
}

static struct ipoib_sa_request *
send_get(struct ipoib_sa *sa, struct result *result)
{
    memset(result, 0, sizeof *result);
    return ipoib_sa_send(sa, IB_METHOD_GET, IB_ATTR_PATH_RECORD, 0x340c, "abc",
                         3, done, result);
}

static uint32_t
tid_low(const struct ib_sa_mad *mad)
{
    return ntohll(get_32aligned_be64(&mad->tid));
}

static struct ipoib_sa_stats
stats_of(const struct ipoib_sa *sa)
{
    struct ipoib_sa_stats stats;

    ipoib_sa_get_stats(sa, &stats);
    return stats;
}

/* A request and its answer, whose high half of the TID somebody overwrote. */
static void
test_basic(void)
{
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    struct result result;
    struct ib_sa_mad req;

    send_get(sa, &result);
    CHECK_INT(stats_of(sa).n_queued, 1);
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, 1);
    CHECK_INT(t->dests[0].lid, 1);
    fake_check_request(fake_sent(t, 0), 0x01, 0x0035, 0x340c, "616263",
                       OVS_SOURCE_LOCATOR);
    CHECK_INT(stats_of(sa).n_outstanding, 1);

    req = *fake_sent(t, 0);
    put_32aligned_be64(&req.tid, get_32aligned_be64(&req.tid)
                                 ^ htonll(UINT64_C(0xdeadbeef00000000)));
    fake_answer(sa, &req, IB_SA_NO_RECORDS, NULL, 0);
    CHECK_INT(result.n, 1);
    CHECK_INT(result.error, 0);
    CHECK_INT(result.status, IB_SA_NO_RECORDS);
    CHECK_INT(stats_of(sa).n_outstanding, 0);
    CHECK_INT(stats_of(sa).n_refused, 1);

    /* The same answer again has nobody to go to. */
    fake_answer(sa, &req, 0, NULL, 0);
    CHECK_INT(result.n, 1);
    CHECK_INT(stats_of(sa).n_late, 1);
    fake_sa_stop(sa, t, NULL);
}

static void
test_timeouts(void)
{
    static const int resends[] = { 500, 1500, 3500 };
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    long long int start = fake_now;
    struct result result;

    send_get(sa, &result);
    ipoib_sa_run(sa, fake_now);
    for (size_t i = 0; i < ARRAY_SIZE(resends); i++) {
        ipoib_sa_run(sa, start + resends[i] - 1);
        CHECK_INT(t->n_sent, i + 1);
        ipoib_sa_run(sa, start + resends[i]);
        CHECK_INT(t->n_sent, i + 2);
        for (size_t j = 0; j <= i; j++) {
            ovs_assert(tid_low(fake_sent(t, j)) != tid_low(fake_sent(t,
                                                                     i + 1)));
        }
    }
    /* Answers to earlier tries are late. */
    fake_answer(sa, fake_sent(t, 1), 0, NULL, 0);
    CHECK_INT(result.n, 0);
    CHECK_INT(stats_of(sa).n_late, 1);

    ipoib_sa_run(sa, start + 7499);
    CHECK_INT(result.n, 0);
    ipoib_sa_run(sa, start + 7500);
    CHECK_INT(result.n, 1);
    CHECK_INT(result.error, ETIMEDOUT);
    CHECK_INT(t->n_sent, 4);
    CHECK_INT(stats_of(sa).n_resent, 3);
    CHECK_INT(stats_of(sa).n_timeouts, 1);
    CHECK_INT(stats_of(sa).n_outstanding, 0);
    fake_answer(sa, fake_sent(t, 3), 0, NULL, 0);
    CHECK_INT(stats_of(sa).n_late, 2);
    fake_sa_stop(sa, t, NULL);
}

static void
test_window(void)
{
    enum { N = 100 };
    struct result results[N];
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);

    for (int i = 0; i < N; i++) {
        send_get(sa, &results[i]);
    }
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, IPOIB_SA_WINDOW);
    CHECK_INT(stats_of(sa).n_outstanding, IPOIB_SA_WINDOW);
    CHECK_INT(stats_of(sa).n_queued, N - IPOIB_SA_WINDOW);

    /* In order, one for one. */
    fake_answer(sa, fake_sent(t, 7), 0, NULL, 0);
    CHECK_INT(results[7].n, 1);
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, IPOIB_SA_WINDOW + 1);
    fake_answer(sa, fake_sent(t, IPOIB_SA_WINDOW), 0, NULL, 0);
    CHECK_INT(results[IPOIB_SA_WINDOW].n, 1);

    ipoib_sa_set_window(sa, 1000);
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, N);
    for (int i = 0; i < N; i++) {
        fake_answer(sa, fake_sent(t, i), 0, NULL, 0);
    }
    for (int i = 0; i < N; i++) {
        CHECK_INT(results[i].n, 1);
    }
    CHECK_INT(stats_of(sa).n_late, 2);
    fake_sa_stop(sa, t, NULL);
}

static void
test_lies(void)
{
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    struct result result;
    struct ib_sa_mad mad;

    send_get(sa, &result);
    ipoib_sa_run(sa, fake_now);

    mad = *fake_sent(t, 0);
    put_32aligned_be64(&mad.tid, get_32aligned_be64(&mad.tid) ^ htonll(1));
    fake_answer(sa, &mad, 0, NULL, 0); /* Another slot. */
    mad = *fake_sent(t, 0);
    put_32aligned_be64(&mad.tid, get_32aligned_be64(&mad.tid) ^ htonll(256));
    fake_answer(sa, &mad, 0, NULL, 0); /* Another sequence number. */
    CHECK_INT(stats_of(sa).n_late, 2);

    mad = *fake_sent(t, 0);
    mad.attr_id = htons(IB_ATTR_MCMEMBER_RECORD);
    fake_answer(sa, &mad, 0, NULL, 0);
    CHECK_INT(stats_of(sa).n_bad, 1);
    mad = *fake_sent(t, 0);
    mad.method = IB_METHOD_DELETE;
    fake_answer(sa, &mad, 0, NULL, 0);
    CHECK_INT(stats_of(sa).n_bad, 2);
    mad = *fake_sent(t, 0);
    mad.mgmt_class = 0x81;
    fake_answer(sa, &mad, 0, NULL, 0);
    CHECK_INT(stats_of(sa).n_bad, 3);
    mad = *fake_sent(t, 0);
    mad.base_version = 2;
    fake_answer(sa, &mad, 0, NULL, 0);
    CHECK_INT(stats_of(sa).n_bad, 4);
    ipoib_sa_receive(sa, fake_sent(t, 0), 1); /* A request. */
    CHECK_INT(stats_of(sa).n_bad, 5);
    mad = *fake_sent(t, 0);
    mad.method = IB_METHOD_GET_RESP;
    ipoib_sa_receive(sa, &mad, 77);     /* Somebody else. */
    CHECK_INT(stats_of(sa).n_bad, 6);

    CHECK_INT(result.n, 0);
    fake_answer(sa, fake_sent(t, 0), 0, NULL, 0);
    CHECK_INT(result.n, 1);
    fake_sa_stop(sa, t, NULL);
}

static void
test_busy(void)
{
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    long long int lowest = LLONG_MAX, highest = 0;
    struct result result;

    /* Once: sent again after about the timeout, not always the same. */
    for (int i = 0; i < 100; i++) {
        long long int start = fake_now;

        fake_clear(t);
        send_get(sa, &result);
        ipoib_sa_run(sa, fake_now);
        fake_answer(sa, fake_sent(t, 0), IB_MAD_STATUS_BUSY, NULL, 0);
        CHECK_INT(result.n, 0);
        while (t->n_sent < 2) {
            ipoib_sa_run(sa, ++fake_now);
            ovs_assert(fake_now < start + 1000);
        }
        lowest = MIN(lowest, fake_now - start);
        highest = MAX(highest, fake_now - start);
        fake_answer(sa, fake_sent(t, 1), 0, NULL, 0);
        CHECK_INT(result.n, 1);
        CHECK_INT(result.status, 0);
    }
    ovs_assert(lowest >= 250);
    ovs_assert(highest <= 751);
    ovs_assert(highest >= lowest + 100);
    CHECK_INT(stats_of(sa).n_busy, 100);

    /* For ever: the last answer is the caller's. */
    fake_clear(t);
    send_get(sa, &result);
    for (size_t i = 0; !result.n; fake_now += 50) {
        ipoib_sa_run(sa, fake_now);
        if (i < t->n_sent) {
            fake_answer(sa, fake_sent(t, i++), IB_MAD_STATUS_BUSY, NULL, 0);
        }
        ovs_assert(i <= 4);
    }
    CHECK_INT(t->n_sent, 4);
    CHECK_INT(result.error, 0);
    CHECK_INT(result.status, IB_MAD_STATUS_BUSY);
    fake_sa_stop(sa, t, NULL);
}

static void
test_cancel(void)
{
    struct ipoib_sa_request *queued, *sent;
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    struct result a, b;

    sent = send_get(sa, &a);
    ipoib_sa_run(sa, fake_now);
    queued = send_get(sa, &b);
    ipoib_sa_cancel(sa, sent);
    ipoib_sa_cancel(sa, queued);
    CHECK_INT(stats_of(sa).n_outstanding, 0);
    CHECK_INT(stats_of(sa).n_queued, 0);
    fake_answer(sa, fake_sent(t, 0), 0, NULL, 0);
    fake_now += 10000;
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(stats_of(sa).n_late, 1);
    CHECK_INT(t->n_sent, 1);
    CHECK_INT(a.n + b.n, 0);

    /* Destruction with requests outstanding and queued calls nobody. */
    send_get(sa, &a);
    ipoib_sa_run(sa, fake_now);
    send_get(sa, &b);
    fake_sa_stop(sa, t, NULL);
    CHECK_INT(a.n + b.n, 0);
}

/* Requests wait without a timeout while there is nobody to ask, and are sent
 * again at once when somebody else is there. */
static void
test_dest(void)
{
    struct ipoib_mad_dest none = { .lid = 0 };
    struct ipoib_mad_dest other = { .lid = 9, .sl = 3, .has_grh = true };
    struct fake_transport *t, *t2;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    struct result a, b;

    send_get(sa, &a);
    for (int i = 0; i < 3; i++) {
        ipoib_sa_run(sa, fake_now);
        fake_now += 500 << i;   /* Leaves one try. */
    }
    ipoib_sa_set_dest(sa, &none);
    send_get(sa, &b);
    CHECK_INT(stats_of(sa).n_outstanding, 0);
    CHECK_INT(stats_of(sa).n_queued, 2);
    fake_now += 1000000;
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(a.n + b.n, 0);
    CHECK_INT(t->n_sent, 3);
    ovs_assert(!ipoib_sa_is_settled(sa));

    fake_clear(t);
    ipoib_sa_set_dest(sa, &other);
    fake_sa_lid = 9;
    ipoib_sa_run(sa, fake_now);
    /* ClassPortInfo, then those two in order. */
    CHECK_INT(t->n_sent, 3);
    CHECK_INT(t->dests[2].lid, 9);
    CHECK_INT(t->dests[2].sl, 3);
    CHECK_INT(t->dests[2].has_grh, true);
    fake_check_request(fake_sent(t, 0), 0x01, 0x0001, 0, "",
                       OVS_SOURCE_LOCATOR);
    CHECK_INT(stats_of(sa).n_resent, 3);
    /* With all their tries before them. */
    fake_now += 500;
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, 5);
    fake_now += 1000;
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, 8);    /* ClassPortInfo, too. */
    CHECK_INT(a.n, 0);
    fake_answer(sa, fake_sent(t, 6), 0, NULL, 0);
    CHECK_INT(a.n, 1);
    CHECK_INT(b.n, 0);

    /* The same again changes nothing. */
    ipoib_sa_set_dest(sa, &other);
    CHECK_INT(stats_of(sa).n_outstanding, 2);

    /* Another transport. */
    t2 = fake_transport_create(sa);
    ipoib_sa_set_transport(sa, NULL);
    fake_now += 1000000;
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(b.n, 0);
    ipoib_sa_set_transport(sa, &t2->up);
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t2->n_sent, 2);
    fake_answer(sa, fake_sent(t2, 1), 0, NULL, 0);
    CHECK_INT(b.n, 1);
    fake_sa_lid = 1;
    fake_sa_stop(sa, t, NULL);
    t2->up.class->destroy(&t2->up);
}

static void
test_class_port_info(void)
{
    struct ipoib_mad_dest dest = { .lid = 1 };
    struct fake_transport *t;
    struct ipoib_sa *sa;

    sa = fake_sa_start(&t, IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER);
    ovs_assert(ipoib_sa_send_only_full_member(sa));
    fake_sa_stop(sa, t, NULL);

    sa = fake_sa_start(&t, ~IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER & 0x7ffffff);
    ovs_assert(!ipoib_sa_send_only_full_member(sa));

    /* An SA that does not answer: three tries, a second apart. */
    dest.lid = 2;
    ipoib_sa_set_dest(sa, &dest);
    for (int i = 0; i < 3; i++) {
        ipoib_sa_run(sa, fake_now);
        CHECK_INT(t->n_sent, i + 1);
        ipoib_sa_run(sa, fake_now + 999);
        CHECK_INT(t->n_sent, i + 1);
        ovs_assert(!ipoib_sa_is_settled(sa));
        fake_now += 1000;
    }
    ipoib_sa_run(sa, fake_now);
    ovs_assert(ipoib_sa_is_settled(sa));
    ovs_assert(!ipoib_sa_send_only_full_member(sa));
    CHECK_INT(t->n_sent, 3);
    fake_sa_stop(sa, t, NULL);
}

static int n_reports;

static void
report(void *aux OVS_UNUSED, const struct ib_notice *notice)
{
    CHECK_INT(ntohs(notice->trap_number), IB_TRAP_PORT_IN_SERVICE);
    n_reports++;
}

static void
test_report(void)
{
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    struct ib_notice notice;
    struct ib_sa_mad mad;

    memset(&notice, 0, sizeof notice);
    notice.trap_number = htons(IB_TRAP_PORT_IN_SERVICE);
    memset(&mad, 0, sizeof mad);
    mad.base_version = 1;
    mad.mgmt_class = 3;
    mad.class_version = 2;
    mad.method = IB_METHOD_REPORT;
    mad.attr_id = htons(IB_ATTR_NOTICE);
    put_32aligned_be64(&mad.tid, htonll(UINT64_C(0x123456789abcdef0)));
    memcpy(mad.data, &notice, sizeof notice);

    ipoib_sa_set_report_cb(sa, report, NULL);
    /* Not from where the SA is. */
    ipoib_sa_receive(sa, &mad, 77);
    CHECK_INT(n_reports, 0);
    CHECK_INT(stats_of(sa).n_reports, 0);
    CHECK_INT(stats_of(sa).n_bad, 1);
    CHECK_INT(t->n_sent, 0);

    ipoib_sa_receive(sa, &mad, 1);
    CHECK_INT(n_reports, 1);
    CHECK_INT(stats_of(sa).n_reports, 1);
    CHECK_INT(t->n_sent, 1);
    CHECK_INT(t->dests[0].lid, 1);
    CHECK_INT(fake_sent(t, 0)->method, 0x86);
    ovs_assert(!memcmp(&fake_sent(t, 0)->tid, &mad.tid, sizeof mad.tid));
    ovs_assert(!memcmp(fake_sent(t, 0)->data, mad.data, sizeof mad.data));

    mad.attr_id = htons(IB_ATTR_PATH_RECORD);
    ipoib_sa_receive(sa, &mad, 1);
    CHECK_INT(stats_of(sa).n_reports, 1);
    CHECK_INT(t->n_sent, 1);
    CHECK_INT(stats_of(sa).n_bad, 2);
    fake_sa_stop(sa, t, NULL);
}

/* A transport that is full costs no try. */
static void
test_full(void)
{
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    struct result a, b;

    t->room = 1;
    send_get(sa, &a);
    send_get(sa, &b);
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, 1);
    CHECK_INT(stats_of(sa).n_queued, 1);
    for (int i = 0; i < 2000; i++) {
        ipoib_sa_run(sa, ++fake_now);
    }
    CHECK_INT(a.n + b.n, 0);

    t->room = FAKE_MAX_SENT;
    fake_clear(t);
    fake_now += 10;
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, 2);
    fake_answer(sa, fake_sent(t, 0), 0, NULL, 0);
    fake_answer(sa, fake_sent(t, 1), 0, NULL, 0);
    CHECK_INT(a.n, 1);
    CHECK_INT(b.n, 1);

    /* What is said once gives up after a while. */
    t->room = 0;
    CHECK_INT(ipoib_sa_send_once(sa, IB_METHOD_DELETE, 0x38, 1, "x", 1),
              EAGAIN);
    t->room = FAKE_MAX_SENT;
    fake_clear(t);
    CHECK_INT(ipoib_sa_send_once(sa, IB_METHOD_DELETE, 0x38, 1, "x", 1), 0);
    fake_check_request(fake_sent(t, 0), 0x15, 0x38, 1, "78",
                       OVS_SOURCE_LOCATOR);
    fake_answer(sa, fake_sent(t, 0), 0, NULL, 0);
    CHECK_INT(stats_of(sa).n_late, 1);
    ipoib_sa_set_transport(sa, NULL);
    CHECK_INT(ipoib_sa_send_once(sa, IB_METHOD_DELETE, 0x38, 1, "x", 1),
              ENETDOWN);
    fake_sa_stop(sa, t, NULL);
}

/* Callbacks that cancel and send. */
struct nested {
    struct ipoib_sa *sa;
    struct ipoib_sa_request *victim;
    struct result victim_result, other_result;
    int n;
};

static void
nested_cb(void *nested_, int error OVS_UNUSED, uint16_t status OVS_UNUSED,
          const struct ib_sa_mad *mad OVS_UNUSED)
{
    struct nested *nested = nested_;

    nested->n++;
    ipoib_sa_cancel(nested->sa, nested->victim);
    nested->victim = NULL;
    send_get(nested->sa, &nested->other_result);
}

static void
test_nested(void)
{
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);

    for (int timeout = 0; timeout < 2; timeout++) {
        struct nested nested = { .sa = sa };

        fake_clear(t);
        ipoib_sa_send(sa, IB_METHOD_GET, IB_ATTR_PATH_RECORD, 0, NULL, 0,
                      nested_cb, &nested);
        nested.victim = send_get(sa, &nested.victim_result);
        ipoib_sa_run(sa, fake_now);
        if (timeout) {
            for (int i = 0; i < 16; i++) {
                fake_now += 500;
                ipoib_sa_run(sa, fake_now);
            }
        } else {
            fake_answer(sa, fake_sent(t, 0), 0, NULL, 0);
        }
        CHECK_INT(nested.n, 1);
        CHECK_INT(nested.victim_result.n, 0);
        ipoib_sa_run(sa, fake_now);
        fake_answer(sa, fake_sent(t, t->n_sent - 1), 0, NULL, 0);
        CHECK_INT(nested.other_result.n, 1);
        CHECK_INT(stats_of(sa).n_outstanding, 0);
    }
    fake_sa_stop(sa, t, NULL);
}

/* A network that loses, duplicates, delays and so reorders requests and
 * answers: each request ends once, and most end well. */
static void
test_random(void)
{
    enum { N = 3000, MAX_FLYING = 4096 };
    struct { struct ib_sa_mad req; long long int at; } *flying;
    struct result *results = xcalloc(N, sizeof *results);
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0);
    int n_flying = 0, n_ok = 0, n_timeouts = 0, next = 0;
    struct ipoib_sa_stats stats;

    flying = xmalloc(MAX_FLYING * sizeof *flying);
    do {
        for (int i = 0; i < 10 && next < N; i++) {
            send_get(sa, &results[next++]);
        }
        fake_now += 10;
        ipoib_sa_run(sa, fake_now);
        for (size_t i = 0; i < t->n_sent; i++) {
            int copies = random_range(10) < 3 ? 0 : 1 + !random_range(5);

            for (int j = 0; j < copies && n_flying < MAX_FLYING; j++) {
                flying[n_flying].req = *fake_sent(t, i);
                flying[n_flying++].at = fake_now + random_range(700);
            }
        }
        fake_clear(t);
        for (int i = 0; i < n_flying; ) {
            if (fake_now >= flying[i].at) {
                uint16_t status = random_range(20) ? 0 : IB_MAD_STATUS_BUSY;

                fake_answer(sa, &flying[i].req, status, NULL, 0);
                flying[i] = flying[--n_flying];
            } else {
                i++;
            }
        }
        ipoib_sa_get_stats(sa, &stats);
        ovs_assert(stats.n_outstanding <= IPOIB_SA_WINDOW);
    } while (next < N || stats.n_outstanding || stats.n_queued);

    for (int i = 0; i < N; i++) {
        CHECK_INT(results[i].n, 1);
        n_timeouts += results[i].error == ETIMEDOUT;
        n_ok += !results[i].error;
    }
    CHECK_INT(n_ok + n_timeouts, N);
    CHECK_INT(stats.n_timeouts, n_timeouts);
    CHECK_INT(stats.n_bad, 0);
    ovs_assert(n_timeouts < N / 10);
    ovs_assert(stats.n_late && stats.n_busy && stats.n_resent);
    free(flying);
    free(results);
    fake_sa_stop(sa, t, NULL);
}

/* What people are shown. */
static void
test_stats(void)
{
    static const uint16_t statuses[] = { IB_SA_NO_RECORDS, 0, IB_SA_REQ_DENIED,
                                         IB_SA_NO_RECORDS };
    struct fake_transport *t;
    struct ipoib_sa *sa = fake_sa_start(&t, 0x1007);
    struct ipoib_sa_stats before = stats_of(sa), stats;
    struct ipoib_sa_info info;
    struct result result;
    uint64_t n = 0;

    ipoib_sa_get_info(sa, &info);
    ovs_assert(info.known && !info.silent);
    CHECK_INT(info.cap_mask2, 0x1007);
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        send_get(sa, &result);
        fake_clear(t);
        ipoib_sa_run(sa, fake_now);
        xnanosleep(3 * 1000 * 1000);
        fake_answer(sa, fake_sent(t, 0), statuses[i], NULL, 0);
        CHECK_INT(result.status, statuses[i]);
    }
    stats = stats_of(sa);
    CHECK_INT(stats.refusals[0].status, IB_SA_NO_RECORDS);
    CHECK_INT(stats.refusals[0].n, 2);
    CHECK_INT(stats.refusals[1].status, IB_SA_REQ_DENIED);
    CHECK_INT(stats.refusals[1].n, 1);
    CHECK_INT(stats.refusals[2].n, 0);
    for (unsigned int i = 0; i < IPOIB_SA_N_LATENCIES; i++) {
        uint64_t bucket = stats.latencies[i] - before.latencies[i];

        ovs_assert(!i || (ipoib_sa_latency_limit(i)
                          > ipoib_sa_latency_limit(i - 1)));
        /* None can have taken less than 3 ms. */
        ovs_assert(!bucket || ipoib_sa_latency_limit(i) >= 3000);
        n += bucket;
    }
    CHECK_INT(n, 4);
    CHECK_INT(ipoib_sa_latency_limit(0), 100);
    CHECK_INT(ipoib_sa_latency_limit(14), 5000000);
    fake_sa_stop(sa, t, NULL);
}

static void
test_ipoib_sa_main(int argc, char *argv[])
{
    set_program_name(argv[0]);
    fake_clock_start();
    random_set_seed(argc > 1 ? atoi(argv[1]) : 0x5a5a);
    test_basic();
    test_timeouts();
    test_window();
    test_lies();
    test_busy();
    test_cancel();
    test_dest();
    test_class_port_info();
    test_report();
    test_full();
    test_nested();
    test_random();
    test_stats();
}

OVSTEST_REGISTER("test-ipoib-sa", test_ipoib_sa_main);
