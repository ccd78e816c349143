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
#include "test-ipoib-fake.h"

#include <errno.h>
#include <string.h>

#include "timeval.h"
#include "util.h"

long long int fake_now;

void
fake_clock_start(void)
{
    fake_now = time_msec() + 3600 * 1000;
}

void
fake_pass(long long int ms, void (*run)(void *aux), void *aux)
{
    while (ms > 0) {
        long long int step = MIN(ms, 50);

        fake_now += step;
        ms -= step;
        run(aux);
    }
}

/* Verbs. */

int fake_n_ahs;
int fake_n_ahs_made;
int fake_ah_error;

static struct ibv_ah *
fake_create_ah(struct ibv_pd *pd OVS_UNUSED, struct ibv_ah_attr *attr)
{
    struct fake_ah *ah;

    if (fake_ah_error) {
        errno = fake_ah_error;
        return NULL;
    }
    ah = xzalloc(sizeof *ah);
    ah->attr = *attr;
    fake_n_ahs++;
    fake_n_ahs_made++;
    return &ah->up;
}

static int
fake_destroy_ah(struct ibv_ah *ah)
{
    ovs_assert(fake_n_ahs > 0);
    fake_n_ahs--;
    free(CONTAINER_OF(ah, struct fake_ah, up));
    return 0;
}

const struct ipoib_verbs fake_verbs = {
    .name = "fake",
    .create_ah = fake_create_ah,
    .destroy_ah = fake_destroy_ah,
};

const struct ibv_ah_attr *
fake_ah_attr(const struct ibv_ah *ah)
{
    ovs_assert(ah);
    return &CONTAINER_OF(ah, const struct fake_ah, up)->attr;
}

/* The transport. */

static struct fake_transport *
fake_transport_cast(struct ipoib_mad_transport *t)
{
    return CONTAINER_OF(t, struct fake_transport, up);
}

static void
fake_transport_destroy(struct ipoib_mad_transport *t)
{
    free(fake_transport_cast(t));
}

static int
fake_transport_send(struct ipoib_mad_transport *t_,
                    const struct ib_sa_mad *mad,
                    const struct ipoib_mad_dest *dest)
{
    struct fake_transport *t = fake_transport_cast(t_);

    if (t->n_sent >= t->room) {
        return EAGAIN;
    }
    t->sent[t->n_sent] = *mad;
    t->dests[t->n_sent++] = *dest;
    return 0;
}

static void
fake_transport_run(struct ipoib_mad_transport *t OVS_UNUSED)
{
}

static const struct ipoib_mad_class fake_transport_class = {
    .name = "fake",
    .destroy = fake_transport_destroy,
    .send = fake_transport_send,
    .run = fake_transport_run,
    .wait = fake_transport_run,
};

static void
fake_recv(void *sa, const struct ib_sa_mad *mad, uint16_t slid)
{
    ipoib_sa_receive(sa, mad, slid);
}

struct fake_transport *
fake_transport_create(struct ipoib_sa *sa)
{
    struct fake_transport *t = xzalloc(sizeof *t);

    t->up.class = &fake_transport_class;
    t->up.recv = fake_recv;
    t->up.aux = sa;
    t->room = FAKE_MAX_SENT;
    return t;
}

void
fake_clear(struct fake_transport *t)
{
    t->n_sent = 0;
}

const struct ib_sa_mad *
fake_sent(const struct fake_transport *t, size_t i)
{
    ovs_assert(i < t->n_sent);
    return &t->sent[i];
}

const struct ib_sa_mad *
fake_only_sent(const struct fake_transport *t, const char *where)
{
    if (t->n_sent != 1) {
        ovs_fatal(0, "%s: %"PRIuSIZE" requests", where, t->n_sent);
    }
    return fake_sent(t, 0);
}

struct ipoib_sa *
fake_sa_start(struct fake_transport **tp, uint32_t cap_mask2)
{
    struct ipoib_mad_dest dest = { .lid = 1 };
    struct ib_class_port_info info;
    struct ipoib_sa *sa = ipoib_sa_create();
    struct fake_transport *t = fake_transport_create(sa);

    ipoib_sa_set_transport(sa, &t->up);
    ipoib_sa_set_dest(sa, &dest);
    ovs_assert(!ipoib_sa_is_settled(sa));
    ipoib_sa_run(sa, fake_now);
    CHECK_INT(t->n_sent, 1);
    memset(&info, 0, sizeof info);
    info.base_version = 1;
    info.class_version = 2;
    info.cap_mask2_resp = htonl(cap_mask2 << 5 | 18);
    fake_answer(sa, fake_sent(t, 0), 0, &info, sizeof info);
    ovs_assert(ipoib_sa_is_settled(sa));
    fake_clear(t);
    *tp = t;
    return sa;
}

void
fake_sa_stop(struct ipoib_sa *sa, struct fake_transport *t,
             struct ipoib_ah_reaper *reaper)
{
    ipoib_ah_reaper_destroy(reaper);
    ipoib_sa_destroy(sa);
    t->up.class->destroy(&t->up);
    CHECK_INT(fake_n_ahs, 0);
}

uint16_t fake_sa_lid = 1;

void
fake_answer(struct ipoib_sa *sa, const struct ib_sa_mad *req, uint16_t status,
            const void *record, size_t len)
{
    struct ib_sa_mad resp = *req;

    resp.method = ((req->method == IB_METHOD_SET ? IB_METHOD_GET : req->method)
                   | IB_METHOD_RESP);
    resp.status = htons(status);
    if (record) {
        memset(resp.data, 0, sizeof resp.data);
        memcpy(resp.data, record, len);
    }
    ipoib_sa_receive(sa, &resp, fake_sa_lid);
}

void
fake_from_hex(const char *hex, void *p, size_t len)
{
    uint8_t *bytes = p;

    CHECK_INT(strlen(hex), 2 * len);
    for (size_t i = 0; i < len; i++) {
        bool ok;

        bytes[i] = hexits_value(hex + 2 * i, 2, &ok);
        ovs_assert(ok);
    }
}

struct ib_gid
fake_gid(const char *hex)
{
    struct ib_gid gid;

    fake_from_hex(hex, &gid, sizeof gid);
    return gid;
}

void
fake_check_request(const struct ib_sa_mad *mad, uint8_t method,
                   uint16_t attr_id, uint32_t mask, const char *hex,
                   const char *where)
{
    struct ib_sa_mad expected;

    memset(&expected, 0, sizeof expected);
    expected.base_version = 1;
    expected.mgmt_class = 3;
    expected.class_version = 2;
    expected.method = method;
    expected.tid = mad->tid;
    expected.attr_id = htons(attr_id);
    expected.comp_mask[1] = htonl(mask);
    fake_from_hex(hex, expected.data, strlen(hex) / 2);
    if (memcmp(mad, &expected, sizeof expected)) {
        printf("sent:\n");
        ovs_hex_dump(stdout, mad, sizeof *mad, 0, false);
        printf("expected:\n");
        ovs_hex_dump(stdout, &expected, sizeof expected, 0, false);
        ovs_fatal(0, "%s: not the request that was expected", where);
    }
}
