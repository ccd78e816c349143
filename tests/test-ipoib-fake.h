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

#ifndef TEST_IPOIB_FAKE_H
#define TEST_IPOIB_FAKE_H 1

/* A transport and verbs for the tests of the SA client, paths and groups: what
 * was sent is kept for the test to look at and to answer, and address handles
 * are counted.  Time is what the test says it is. */

#include "ipoib-ah.h"
#include "ipoib-mad.h"
#include "ipoib-sa.h"
#include "ipoib-verbs.h"

/* Like ovs_assert(), but tells the values. */
#define CHECK_INT(A, B)                                                 \
    do {                                                                \
        long long int a__ = (A), b__ = (B);                             \
        if (a__ != b__) {                                               \
            ovs_fatal(0, "%s: %s is %lld, not %lld", OVS_SOURCE_LOCATOR, \
                      #A, a__, b__);                                    \
        }                                                               \
    } while (0)

/* The clock of the test.  It is ahead of time_msec(), since the code under
 * test takes the later one of both. */
extern long long int fake_now;
void fake_clock_start(void);
/* Lets 'ms' pass in steps of at most 50 ms, with 'run' after each. */
void fake_pass(long long int ms, void (*run)(void *aux), void *aux);

/* Verbs. */

struct fake_ah {
    struct ibv_ah up;
    struct ibv_ah_attr attr;
};

extern const struct ipoib_verbs fake_verbs;
extern int fake_n_ahs;          /* That exist. */
extern int fake_n_ahs_made;     /* Ever. */
extern uint16_t fake_sa_lid;    /* From which fake_answer() answers. */
extern int fake_ah_error;       /* If nonzero, create_ah() fails so. */
const struct ibv_ah_attr *fake_ah_attr(const struct ibv_ah *);

/* The transport. */

#define FAKE_MAX_SENT 8192
struct fake_transport {
    struct ipoib_mad_transport up;
    size_t n_sent;              /* What was sent since fake_clear(). */
    struct ib_sa_mad sent[FAKE_MAX_SENT];
    struct ipoib_mad_dest dests[FAKE_MAX_SENT];
    unsigned int room;          /* EAGAIN after so many. */
};

struct fake_transport *fake_transport_create(struct ipoib_sa *);
void fake_clear(struct fake_transport *);
const struct ib_sa_mad *fake_sent(const struct fake_transport *, size_t i);
/* What was sent since fake_clear(): there must be one, and only one. */
const struct ib_sa_mad *fake_only_sent(const struct fake_transport *,
                                       const char *where);

/* An SA client on a transport, with the SA at LID 1, which has told its
 * capabilities ('cap_mask2'). */
struct ipoib_sa *fake_sa_start(struct fake_transport **, uint32_t cap_mask2);
/* Ends both, and 'reaper'; no address handle may be left. */
void fake_sa_stop(struct ipoib_sa *, struct fake_transport *,
                  struct ipoib_ah_reaper *reaper);

/* Answers 'req' with 'status' and, unless null, 'len' bytes of 'record'. */
void fake_answer(struct ipoib_sa *, const struct ib_sa_mad *req,
                 uint16_t status, const void *record, size_t len);

/* 'hex' (of any length) to bytes at 'p', of which there must be 'len'. */
void fake_from_hex(const char *hex, void *p, size_t len);
struct ib_gid fake_gid(const char *hex);
/* Fails unless 'mad' has 'method', 'attr_id', 'mask', the constant fields of
 * an SA MAD, and the bytes of 'hex' as its record. */
void fake_check_request(const struct ib_sa_mad *mad, uint8_t method,
                        uint16_t attr_id, uint32_t mask, const char *hex,
                        const char *where);

#endif /* test-ipoib-fake.h */
