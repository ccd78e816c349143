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

#ifndef IPOIB_AH_H
#define IPOIB_AH_H 1

/* Address handles (AHs) of an HCA: those with the same attributes are shared,
 * and their ends are delayed.
 *
 * Thread-safety: none; the control thread (with the HCA's mutex). */

#include <infiniband/verbs.h>
#include <stddef.h>
#include "ipoib-verbs.h"

/* Destroys AHs when neither the data path nor a send queue can use them any
 * more: an RCU grace period and IPOIB_AH_REST ms after ipoib_ah_retire(). */
#define IPOIB_AH_REST 2000
struct ipoib_ah_reaper;
struct ipoib_ah_reaper *ipoib_ah_reaper_create(const struct ipoib_verbs *);
/* Destroys all at once; nothing may be sending any more. */
void ipoib_ah_reaper_destroy(struct ipoib_ah_reaper *);

/* An AH of 'attr' in 'pd' (whose padding is zeroed), or NULL and errno.  Who
 * asks for the same gets the same AH, also without a GRH for another GID. */
struct ibv_ah *ipoib_ah_get(struct ipoib_ah_reaper *, struct ibv_pd *pd,
                            const struct ibv_ah_attr *attr);
/* AHs of ipoib_ah_get() that are in use. */
size_t ipoib_ah_count(const struct ipoib_ah_reaper *);
/* The caller no longer uses 'ah' (or NULL), of ipoib_ah_get() or one of its
 * own. */
void ipoib_ah_retire(struct ipoib_ah_reaper *, struct ibv_ah *ah);
void ipoib_ah_reaper_run(struct ipoib_ah_reaper *, long long int now);
void ipoib_ah_reaper_wait(struct ipoib_ah_reaper *);

#endif /* ipoib-ah.h */
