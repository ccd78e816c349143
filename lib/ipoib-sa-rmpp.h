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

#ifndef IPOIB_SA_RMPP_H
#define IPOIB_SA_RMPP_H 1

/* The receiving end of RMPP (InfiniBand, 13.6): puts the segments of one
 * table, as GetTable is answered with, together.
 *
 * Thread-safety: none (control thread). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-wire.h"

/* Largest table, in bytes; what is behind is left out. */
#define IPOIB_RMPP_MAX (4 << 20)

/* So many segments may be under way. */
#define IPOIB_RMPP_WINDOW 16

enum ipoib_rmpp_result {
    IPOIB_RMPP_IGNORE,          /* A segment that is out of its place. */
    IPOIB_RMPP_MORE,            /* One step further. */
    IPOIB_RMPP_DONE,            /* All are there. */
    IPOIB_RMPP_BAD,             /* The sender gave up, or makes no sense. */
};

struct ipoib_rmpp {
    uint8_t *data;
    size_t len, allocated;
    uint32_t n_segments;        /* Received, without a gap. */
    uint32_t window_last;       /* Last one that the sender may send. */
    uint16_t record_size;       /* 0: there are no records. */
};

void ipoib_rmpp_init(struct ipoib_rmpp *);
void ipoib_rmpp_destroy(struct ipoib_rmpp *);
/* Forgets what was received: the request is made again. */
void ipoib_rmpp_restart(struct ipoib_rmpp *);

/* Takes in 'mad', an answer with the RMPP flag "active".  If '*send_ack' is
 * set, '*ack' is to be sent back. */
enum ipoib_rmpp_result ipoib_rmpp_receive(struct ipoib_rmpp *,
                                          const struct ib_sa_mad *mad,
                                          struct ib_sa_mad *ack,
                                          bool *send_ack);

/* Whole records received so far. */
size_t ipoib_rmpp_n_records(const struct ipoib_rmpp *);

#endif /* ipoib-sa-rmpp.h */
