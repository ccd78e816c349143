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

#ifndef TEST_IPOIB_VERBS_H
#define TEST_IPOIB_VERBS_H 1

/* What the files of test-ipoib-verbs share. */

#include <stdio.h>
#include <string.h>
#include "ipoib-verbs.h"
#include "ipoib-wire.h"
#include "timeval.h"
#include "util.h"

#define SLOT   4608             /* A receive buffer: GRH, 4096 bytes, more. */
#define N_SLOTS 128
#define SEND_SLOT N_SLOTS       /* One slot more, to send from. */
#define QKEY   0x11223344u

/* A device, opened. */
struct dev {
    const char *name;
    const struct ipoib_verbs *v;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_port_attr port;
    union ibv_gid gid;
};

/* A queue pair with all it needs. */
struct end {
    struct dev *d;
    struct ibv_cq *scq, *rcq;
    struct ibv_qp *qp;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    uint8_t *mem;
    size_t size;
};

extern struct dev *A, *B;       /* The same, if there is only one. */
extern const char *control;     /* Changes the subnet, or NULL. */

/* The harness: test-ipoib-verbs.c. */
void check(bool good, const char *format, ...) OVS_PRINTF_FORMAT(2, 3);
void skip(const char *what, const char *why);
void open_dev(struct dev *d, const char *name);
bool port_is(struct dev *d, enum ibv_port_state state);
bool wait_port(struct dev *d, enum ibv_port_state state);
struct ibv_qp *make_qp(struct end *e, int send_wr, int inline_len, bool block);
int start(struct end *e, struct ibv_qp *qp, uint16_t pkey_index,
          uint32_t qkey);
void make_end(struct end *e, struct dev *d, struct ibv_srq *srq);
void free_end(struct end *e);
struct ibv_srq *make_srq(struct dev *d, uint32_t max_wr);
struct ibv_ah *make_ah(struct dev *d, uint16_t dlid,
                       const union ibv_gid *dgid);
enum ibv_qp_state state_of(struct end *e);
int set_state(struct end *e, struct ibv_qp *qp, enum ibv_qp_state state);
int poll_n(struct ibv_cq *cq, struct ibv_wc *wc, int n, int ms);
bool poll_one(struct ibv_cq *cq, struct ibv_wc *wc);
bool poll_none(struct ibv_cq *cq);
bool wait_event(struct dev *d, enum ibv_event_type type, void *element,
                int ms);
void drop_events(struct dev *d);
uint8_t *slot(struct end *e, int i);
uint64_t addr_of(struct end *e, int i);
int post_recv(struct end *e, uint64_t id, int where, uint32_t len);
void post_recvs(struct end *e, int n);
void fill(uint8_t *p, uint64_t seed, size_t len);
bool filled(const uint8_t *p, uint64_t seed, size_t len);
void ud_wr(struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t id, int flags,
           struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);
int post(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
          uint64_t id, uint32_t len, int flags);
bool sent(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
          uint64_t id, uint32_t len);
bool subnet(const char *format, ...) OVS_PRINTF_FORMAT(1, 2);
unsigned long long int guid_of(const struct dev *d);

/* test-ipoib-verbs-queues.c */
void test_srq_post(void);
void test_srq_limit(void);
void test_srq_empty(void);
void test_chain(void);
void test_send_errors(void);
void test_receive_error(void);
void test_states(void);
void test_inline(void);
void test_cq(void);

/* test-ipoib-verbs-port.c */
void test_packets(void);
void test_scatter(void);
void test_path_bits(void);
void test_pkeys(void);
void test_grh_required(void);
void test_sa(void);
void test_mcast(void);
void test_events(void);
void test_many(int n);
void test_threads(void);
void test_model(void);
void test_attach(struct dev *, const char *start_fabric,
                 const char *stop_fabric);

/* test-ipoib-verbs-hostile.c */
void test_hostile(const char *path);

#endif /* test-ipoib-verbs.h */
