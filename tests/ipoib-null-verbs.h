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

#ifndef IPOIB_NULL_VERBS_H
#define IPOIB_NULL_VERBS_H 1

/* A device without a fabric, for tests of the data path: what it receives is
 * set beforehand, and what is sent through it is looked at or forgotten. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include "ipoib-verbs.h"

extern const struct ipoib_verbs null_verbs;

/* A packet to be received. */
struct null_packet {
    struct ibv_wc wc;           /* 'wr_id' and 'byte_len' are filled in. */
    uint8_t data[4096 + 40];    /* From the GRH space on. */
    uint32_t len;
};

/* A WR that was posted to be sent. */
struct null_send {
    uint32_t sqpn, dqpn, qkey;
    struct ibv_ah *ah;
    uint8_t data[4096];
    uint32_t len, lkey;
    unsigned int flags;
    uint64_t addr;
};

/* The last IBV_WR_TSO that was posted. */
struct null_tso {
    uint32_t n;                 /* How many there were. */
    uint32_t dqpn, qkey;
    struct ibv_ah *ah;
    uint8_t data[1 << 16];      /* The headers and what is behind them. */
    size_t len, hdr_sz, mss;
    int num_sge;
    uint32_t lkey;
    unsigned int flags;
};

#define NULL_MAX 4096           /* Of each of the arrays below: a power of
                                 * 2. */

struct null_hca {
    struct ibv_context ctx;
    struct ibv_pd pd;

    /* Objects that exist. */
    int n_objects;
    bool refuse_mr;             /* No memory is registered any more. */
    uint32_t next_qpn;

    /* Buffers posted to receive, first in, first out. */
    struct { uint64_t wr_id, addr; uint32_t length, lkey; } posted[NULL_MAX];
    uint32_t posted_head, posted_tail;
    unsigned int post_recv_limit; /* Fail beyond so many posted; 0: never. */

    /* Receive: packets that the next polls take.  With 'source', packets come
     * from there for ever, and only their wc, GRH and headers are written. */
    struct ibv_cq *rx_cq;
    struct null_packet *rx;     /* NULL_MAX of them. */
    uint32_t rx_head, rx_tail;
    struct null_packet *source;
    size_t n_source, source_pos;

    /* Send.  With 'sink' nothing is noted down and all completes at once. */
    bool sink;
    struct null_send *sent;     /* NULL_MAX of them. */
    uint32_t n_sent;
    struct null_tso tso;
    struct { uint64_t wr_id; enum ibv_wc_status status; } done[NULL_MAX];
    uint32_t done_head, done_tail;
    bool hold;                  /* Nothing completes. */
    unsigned int hold_polls;    /* Nor for so many polls. */
    int refuse_at;              /* This WR of a chain is refused (EINVAL), -1:
                                 * none. */
    int fail_at;                /* This WR of a chain fails, those that follow
                                 * are flushed; -1: none. */
    bool broken;                /* A send has failed: SQE. */
};

struct null_hca *null_hca_open(void);
void null_hca_close(struct null_hca *);
/* Appends a packet that will be received. */
struct null_packet *null_hca_receive(struct null_hca *);

#endif /* ipoib-null-verbs.h */
