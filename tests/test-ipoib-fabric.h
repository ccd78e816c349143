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

#ifndef TEST_IPOIB_FABRIC_H
#define TEST_IPOIB_FABRIC_H 1

/* Raw ports on a running ovs-ipoib-fabric, for its tests. */

#include "ipoib-wire.h"

/* Like ovs_assert(), but says which line of a test failed and why. */
#define CHECK(COND) tf_check(COND, __FILE__, __LINE__, #COND)
void tf_check(bool ok, const char *file, int line, const char *what);

/* Compares two numbers. */
#define CHECK_EQ(A, B) tf_check_eq(A, B, __FILE__, __LINE__, #A)
void tf_check_eq(uint64_t a, uint64_t b, const char *file, int line,
                 const char *what);

struct tf_port {
    int fd;
    bool udp;
    uint64_t guid;
    uint8_t max_mtu;

    /* From the last PORT and PORTCAP. */
    uint8_t state, lmc, mtu, flags, caps;
    uint16_t lid, sm_lid;
    uint64_t prefix;
    uint16_t pkeys[IB_SOFT_MAX_PKEYS];
    int n_pkeys;

    int n_ports;                /* PORT messages so far. */
    int n_reregisters;          /* Those with the flag. */
    bool closed;                /* The fabric ended the connection. */

    uint8_t packet[IB_SOFT_MSG_MAX]; /* The last packet that came. */
    size_t packet_len;          /* From the LRH on. */
    uint16_t pkey;              /* For what is sent. */
};

extern const char *tf_address;  /* unix:PATH or udp:ADDR:PORT. */

struct tf_port *tf_open(void);
void tf_send_attach(struct tf_port *, uint64_t guid, uint8_t max_mtu,
                    const char *description);
struct tf_port *tf_attach(uint64_t guid);
void tf_close(struct tf_port *);
void tf_send_message(struct tf_port *, enum ib_soft_type, const void *body,
                     size_t);
void tf_send_raw(struct tf_port *, const void *, size_t);

enum ib_soft_type tf_receive(struct tf_port *, int timeout_ms);
void tf_expect_port(struct tf_port *);
void tf_expect_packet(struct tf_port *, struct ib_ud *);
void tf_expect_payload(struct tf_port *, const char *payload);
void tf_expect_silence(struct tf_port *, int ms);

struct ib_ud tf_ud(const struct tf_port *, uint16_t dlid, uint32_t dqpn,
                   const void *payload, size_t);
void tf_send_ud(struct tf_port *, const struct ib_ud *);
void tf_send_text(struct tf_port *, uint16_t dlid, uint32_t dqpn,
                  const char *payload);
struct ib_gid tf_gid(const struct tf_port *);

/* Management datagrams. */
void tf_init_mad(struct ib_sa_mad *, uint8_t method, uint16_t attr,
                 uint64_t mask, const void *data, size_t);
void tf_send_mad(struct tf_port *, const struct ib_sa_mad *);
void tf_expect_mad(struct tf_port *, struct ib_sa_mad *);
uint16_t tf_sa(struct tf_port *, uint8_t method, uint16_t attr,
               uint64_t mask, const void *data, size_t, struct ib_sa_mad *);
uint16_t tf_join(struct tf_port *, const struct ib_gid *mgid, uint8_t state,
                 bool create, struct ib_mcmember_record *);
uint16_t tf_leave(struct tf_port *, const struct ib_gid *mgid, uint8_t state);
uint16_t tf_path(struct tf_port *, uint64_t guid, uint16_t pkey,
                 struct ib_path_record *);
struct ib_gid tf_mgid(uint32_t ip);
size_t tf_table(struct tf_port *, uint16_t attr, uint64_t mask,
                const void *data, size_t n, uint32_t window,
                uint8_t **records, size_t *step);

/* The daemon's commands. */
char *tf_appctl(const char *command, ...)
    __attribute__((sentinel));
char *tf_appctl_fails(const char *command, ...)
    __attribute__((sentinel));
void tf_do(const char *command, ...)
    __attribute__((sentinel));
uint64_t tf_counter(const char *name);
void tf_connect_daemon(const char *unixctl_path);

/* Tests that are in files of their own. */
void tf_test_opensm(void);
void tf_test_join(void);
void tf_test_path(void);
void tf_test_records(void);
void tf_test_table(void);
void tf_test_rmpp_errors(void);
void tf_test_inform(void);
void tf_test_sa_faults(void);
void tf_test_sa_waiting(void);
void tf_test_sm_restart(void);
void tf_test_sa_headers(void);
void tf_test_made_up(void);
void tf_test_external(void);

#endif /* test-ipoib-fabric.h */
