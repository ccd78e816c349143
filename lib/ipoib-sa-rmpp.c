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
#include "ipoib-sa-rmpp.h"

#include <stdlib.h>
#include <string.h>

#include "util.h"

/* Bytes of the SA header, which count as payload in the length of a segment
 * (but not in what is put together). */
#define SA_HEADER_LEN 20

void
ipoib_rmpp_init(struct ipoib_rmpp *rmpp)
{
    memset(rmpp, 0, sizeof *rmpp);
    rmpp->window_last = 1;
}

void
ipoib_rmpp_destroy(struct ipoib_rmpp *rmpp)
{
    free(rmpp->data);
}

void
ipoib_rmpp_restart(struct ipoib_rmpp *rmpp)
{
    rmpp->len = 0;
    rmpp->n_segments = 0;
    rmpp->window_last = 1;
    rmpp->record_size = 0;
}

/* Bytes of records in the segment 'mad'. */
static size_t
rmpp_segment_len(const struct ib_sa_mad *mad)
{
    uint32_t paylen = ntohl(mad->rmpp_data2);

    if (!(mad->rmpp_flags & IB_RMPP_FLAG_LAST)) {
        return IB_SA_DATA_LEN;
    }
    return paylen < SA_HEADER_LEN
           ? 0 : MIN(paylen - SA_HEADER_LEN, IB_SA_DATA_LEN);
}

static void
rmpp_append(struct ipoib_rmpp *rmpp, const struct ib_sa_mad *mad)
{
    size_t n = MIN(rmpp_segment_len(mad), IPOIB_RMPP_MAX - rmpp->len);

    if (rmpp->len + n > rmpp->allocated) {
        rmpp->allocated = MAX(rmpp->len + n, rmpp->allocated * 2);
        rmpp->data = xrealloc(rmpp->data, rmpp->allocated);
    }
    if (n) {
        memcpy(rmpp->data + rmpp->len, mad->data, n);
        rmpp->len += n;
    }
}

/* Makes '*ack' the acknowledgement of all segments so far. */
static void
rmpp_compose_ack(const struct ipoib_rmpp *rmpp, const struct ib_sa_mad *mad,
                 struct ib_sa_mad *ack)
{
    *ack = *mad;
    ack->method = mad->method & ~IB_METHOD_RESP;
    ack->rmpp_type = IB_RMPP_TYPE_ACK;
    ack->rmpp_flags = IB_RMPP_FLAG_ACTIVE;
    ack->rmpp_status = 0;
    ack->rmpp_data1 = htonl(rmpp->n_segments);
    ack->rmpp_data2 = htonl(rmpp->window_last);
    memset(ack->data, 0, sizeof ack->data);
}

enum ipoib_rmpp_result
ipoib_rmpp_receive(struct ipoib_rmpp *rmpp, const struct ib_sa_mad *mad,
                   struct ib_sa_mad *ack, bool *send_ack)
{
    uint32_t segment = ntohl(mad->rmpp_data1);
    bool last = mad->rmpp_flags & IB_RMPP_FLAG_LAST;

    *send_ack = false;
    if (mad->rmpp_version != IB_RMPP_VERSION
        || mad->rmpp_type != IB_RMPP_TYPE_DATA || !segment) {
        return IPOIB_RMPP_BAD;
    }
    if (segment > rmpp->n_segments + 1) {
        /* One before it was lost, and will come again. */
        return IPOIB_RMPP_IGNORE;
    }
    if (segment <= rmpp->n_segments) {
        /* The acknowledgement was lost. */
        rmpp_compose_ack(rmpp, mad, ack);
        *send_ack = true;
        return IPOIB_RMPP_IGNORE;
    }
    if (segment == 1) {
        rmpp->record_size = MIN(ntohs(mad->attr_offset) * 8, UINT16_MAX);
    }
    rmpp_append(rmpp, mad);
    rmpp->n_segments = segment;
    if (last || segment >= rmpp->window_last) {
        if (!last) {
            rmpp->window_last = segment + IPOIB_RMPP_WINDOW;
        }
        rmpp_compose_ack(rmpp, mad, ack);
        *send_ack = true;
    }
    return last ? IPOIB_RMPP_DONE : IPOIB_RMPP_MORE;
}

size_t
ipoib_rmpp_n_records(const struct ipoib_rmpp *rmpp)
{
    return rmpp->record_size ? rmpp->len / rmpp->record_size : 0;
}
