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

#ifndef IPOIB_SA_H
#define IPOIB_SA_H 1

/* A client of the subnet administrator: an engine of asynchronous
 * transactions over an ipoib_mad transport.
 *
 * Each request is sent, and sent again with a new transaction ID after a
 * timeout that doubles, until an answer comes, it is cancelled, or the tries
 * are used up.  At most 'window' requests are outstanding; others wait their
 * turn.  BUSY is retried with jitter.  Late and unasked answers are counted
 * and dropped.  Reports are answered also where nobody subscribed to them (the
 * QPN may have been somebody else's), so that they end.
 *
 * Thread-safety: none; everything belongs to the control thread. */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-mad.h"

struct ipoib_sa;
struct ipoib_sa_request;

/* How a request ended: 'error' is 0 (then 'mad' is the answer, whose status,
 * in host byte order, is 'status'), ETIMEDOUT, or ENETDOWN (the client was
 * stopped).  The request is gone when this is called; new ones may be made
 * within it. */
typedef void ipoib_sa_cb(void *aux, int error, uint16_t status,
                         const struct ib_sa_mad *mad);

/* A Report (method 0x06) that arrived from where the SA is; the client answers
 * it by itself. */
typedef void ipoib_sa_report_cb(void *aux, const struct ib_notice *);

struct ipoib_sa *ipoib_sa_create(void);
void ipoib_sa_destroy(struct ipoib_sa *); /* Cancels all, without callbacks. */

/* The transport to use from now on (NULL: none; requests wait).  Not owned.
 * Its receive callback must call ipoib_sa_receive(). */
void ipoib_sa_set_transport(struct ipoib_sa *, struct ipoib_mad_transport *);
void ipoib_sa_receive(struct ipoib_sa *, const struct ib_sa_mad *,
                      uint16_t slid);
/* The transport says that 'mad', a request, was not delivered. */
void ipoib_sa_undelivered(struct ipoib_sa *, const struct ib_sa_mad *mad);
/* Where the SA is; 'lid' 0: nowhere yet, requests wait and don't time out.
 * Outstanding requests are sent again at once if it changed. */
void ipoib_sa_set_dest(struct ipoib_sa *, const struct ipoib_mad_dest *);
void ipoib_sa_set_report_cb(struct ipoib_sa *, ipoib_sa_report_cb *,
                            void *aux);

/* Queues a request: 'method' and 'attr_id' (host byte order), 'len' bytes of
 * 'record', of which 'comp_mask' are meant.  Never fails, and never calls back
 * within itself.  The handle is valid until the callback, or the cancel. */
struct ipoib_sa_request *
ipoib_sa_send(struct ipoib_sa *, uint8_t method, uint16_t attr_id,
              uint64_t comp_mask, const void *record, size_t len,
              ipoib_sa_cb *, void *aux);
/* The same for GetTable of 'attr_id'.  The 'n' records of 'size' bytes at
 * 'records' are all if 'error' and 'status' are 0; else what came in time,
 * which may be none. */
typedef void ipoib_sa_table_cb(void *aux, int error, uint16_t status,
                               const uint8_t *records, size_t n, size_t size);
struct ipoib_sa_request *
ipoib_sa_send_get_table(struct ipoib_sa *, uint16_t attr_id,
                        uint64_t comp_mask, const void *record, size_t len,
                        ipoib_sa_table_cb *, void *aux);
void ipoib_sa_cancel(struct ipoib_sa *, struct ipoib_sa_request *);

void ipoib_sa_run(struct ipoib_sa *, long long int now);
void ipoib_sa_wait(struct ipoib_sa *);

/* Sends a request once, at once, past the window; whatever is answered counts
 * as late.  For what is said on the way out.  Returns 0 or a positive errno
 * value (ENETDOWN: there is no transport or no SA). */
int ipoib_sa_send_once(struct ipoib_sa *, uint8_t method, uint16_t attr_id,
                       uint64_t comp_mask, const void *record, size_t len);

/* How many requests may be outstanding, 1 to 256. */
#define IPOIB_SA_WINDOW 64
void ipoib_sa_set_window(struct ipoib_sa *, unsigned int window);

/* ClassPortInfo, which the client asks for by itself when the SA is new.
 * False until it is known. */
bool ipoib_sa_send_only_full_member(const struct ipoib_sa *);
/* True once ClassPortInfo is known, or the client has given up on it. */
bool ipoib_sa_is_settled(const struct ipoib_sa *);

/* What the SA has told of itself; what it has not is 0. */
struct ipoib_sa_info {
    bool known;
    bool silent;                /* It was asked in vain. */
    uint8_t base_version, class_version;
    uint16_t cap_mask;
    uint32_t cap_mask2;         /* 27 bits. */
    uint8_t resp_time;          /* 4.096 us * 2 ** resp_time. */
};
void ipoib_sa_get_info(const struct ipoib_sa *, struct ipoib_sa_info *);

/* Answers by the time that they took, from the request's last try on: bucket
 * 'i' has those of at most ipoib_sa_latency_limit(i) microseconds that are in
 * no lower one.  The last limit is UINT64_MAX. */
#define IPOIB_SA_N_LATENCIES 16
uint64_t ipoib_sa_latency_limit(unsigned int i);

/* Refusals by status; of further ones, only 'n_refused' tells. */
#define IPOIB_SA_N_STATUSES 16
struct ipoib_sa_refusals {
    uint16_t status;            /* 0: the entry is free, as all after it. */
    uint64_t n;
};

struct ipoib_sa_stats {
    uint64_t n_sent, n_resent, n_answers, n_timeouts, n_late, n_busy,
             n_refused, n_reports, n_bad, n_undelivered;
    unsigned int n_outstanding, n_queued, window;
    uint64_t latencies[IPOIB_SA_N_LATENCIES];
    struct ipoib_sa_refusals refusals[IPOIB_SA_N_STATUSES];
};
void ipoib_sa_get_stats(const struct ipoib_sa *, struct ipoib_sa_stats *);

#endif /* ipoib-sa.h */
