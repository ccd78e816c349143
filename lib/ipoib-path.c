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
#include "ipoib-path.h"

#include <errno.h>
#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_path);

COVERAGE_DEFINE(ipoib_path_query);
COVERAGE_DEFINE(ipoib_path_bad_record);
COVERAGE_DEFINE(ipoib_path_failed);

#define PATH_WINDOW 32          /* Queries under way, at most. */
#define PATH_HOLD_DOWN_MAX 16   /* Seconds, after 1, 2, 4 and 8. */
#define PATH_SUSPECT_PAUSE 1000 /* Between queries for suspicion, ms. */
#define PATH_UNUSED_TIMEOUT 60000 /* Until a path without users goes, ms. */
#define PATH_GRACE 3000         /* After an event, for others to return, ms. */
#define PATH_SCAN_PAUSE 100     /* Between walks over all paths, ms. */

/* Paths. */

struct ipoib_path_table {
    const struct ipoib_verbs *verbs;
    struct ibv_pd *pd;
    struct ipoib_sa *sa;
    struct ipoib_ah_reaper *reaper;
    ipoib_path_changed_cb *changed;
    void *aux;

    struct ipoib_path_params params;
    bool have_params;

    struct hmap paths;
    struct ovs_list urgent;     /* To be asked: somebody waits. */
    struct ovs_list refresh;    /* To be asked, after those. */
    long long int grace;        /* Until then others may be coming back. */
    unsigned int n_requests;    /* Under way. */
    long long int now;          /* Of the last run. */
    long long int next_scan;
    long long int last_scan;
};

static ipoib_sa_cb path_answer;

static long long int
path_now(const struct ipoib_path_table *table)
{
    return MAX(table->now, time_msec());
}

/* Has ipoib_path_table_run() look at all paths at 'when'. */
static void
path_schedule(struct ipoib_path_table *table, long long int when)
{
    table->next_scan = MIN(table->next_scan, when);
}

struct ipoib_path_table *
ipoib_path_table_create(const struct ipoib_verbs *verbs, struct ibv_pd *pd,
                        struct ipoib_sa *sa, struct ipoib_ah_reaper *reaper,
                        ipoib_path_changed_cb *changed, void *aux)
{
    struct ipoib_path_table *table = xzalloc(sizeof *table);

    table->verbs = verbs;
    table->pd = pd;
    table->sa = sa;
    table->reaper = reaper;
    table->changed = changed;
    table->aux = aux;
    hmap_init(&table->paths);
    ovs_list_init(&table->urgent);
    ovs_list_init(&table->refresh);
    table->next_scan = LLONG_MAX;
    return table;
}

static void
path_cancel(struct ipoib_path *path)
{
    if (path->request) {
        ipoib_sa_cancel(path->table->sa, path->request);
        path->request = NULL;
        path->table->n_requests--;
    }
    ovs_list_remove(&path->todo);
    ovs_list_init(&path->todo);
}

static void
path_destroy(struct ipoib_path *path)
{
    path_cancel(path);
    ipoib_ah_retire(path->table->reaper, path->ah);
    hmap_remove(&path->table->paths, &path->node);
    free(path);
}

void
ipoib_path_table_destroy(struct ipoib_path_table *table)
{
    struct ipoib_path *path;

    if (!table) {
        return;
    }
    HMAP_FOR_EACH_SAFE (path, node, &table->paths) {
        path_destroy(path);
    }
    hmap_destroy(&table->paths);
    free(table);
}

/* Puts 'path' into the list of those to be asked for, unless it is asked for
 * already. */
static void
path_enqueue(struct ipoib_path *path, bool urgent)
{
    struct ipoib_path_table *table = path->table;

    if (!path->request) {
        ovs_list_remove(&path->todo);
        ovs_list_push_back(urgent ? &table->urgent : &table->refresh,
                           &path->todo);
    }
}

static bool
path_is_enqueued(const struct ipoib_path *path)
{
    return !ovs_list_is_empty(&path->todo);
}

static void
path_changed(struct ipoib_path *path)
{
    path->table->changed(path->table->aux, path);
}

static void
path_ask(struct ipoib_path *path, long long int now)
{
    struct ipoib_path_table *table = path->table;
    const struct ipoib_path_params *params = &table->params;
    struct ib_path_record rec;
    uint64_t mask = IB_PR_MASK_IPOIB;

    memset(&rec, 0, sizeof rec);
    rec.dgid = path->dgid;
    rec.sgid = params->sgid;
    rec.tclass = params->tclass;
    rec.numb_path = 1;
    rec.pkey = htons(params->pkey | IB_PKEY_FULL);
    if (params->wants_sl) {
        rec.qos_sl = htons(params->sl);
        mask |= IB_PR_SL;
    }

    ovs_list_remove(&path->todo);
    ovs_list_init(&path->todo);
    path->last_asked = now;
    path->request = ipoib_sa_send(table->sa, IB_METHOD_GET,
                                  IB_ATTR_PATH_RECORD, mask, &rec, sizeof rec,
                                  path_answer, path);
    table->n_requests++;
    COVERAGE_INC(ipoib_path_query);
}

/* 1, 2, 4 ... PATH_HOLD_DOWN_MAX s, in ms. */
static long long int
path_hold_down(unsigned int n_failures)
{
    return MIN(1LL << MIN(n_failures - 1, 10), PATH_HOLD_DOWN_MAX) * 1000;
}

/* The last try for 'path' gave nothing.  A path that worked goes on to,
 * unless 'final': the SA says that there is no such path any more.  After an
 * event that is no final word for a while: the SA was restarted, perhaps, and
 * the other port is about to come back, mostly with the same LID. */
static void
path_fail(struct ipoib_path *path, bool final)
{
    struct ipoib_path_table *table = path->table;
    struct ibv_ah *old = path->ah;
    long long int now = path_now(table);

    if (final && path->state == IPOIB_PATH_READY && now < table->grace) {
        path->n_failures = 0;
        final = false;
    }
    path->n_failures++;
    path->next_try = now + path_hold_down(path->n_failures);
    COVERAGE_INC(ipoib_path_failed);
    if (path->state == IPOIB_PATH_READY && !final) {
        path->stale = true;
        path_schedule(table, path->next_try);
        return;
    }

    path->stale = false;
    path->ah = NULL;
    path->mtu = path->record_mtu = 0;
    path->state = IPOIB_PATH_FAILED;
    ipoib_ah_retire(table->reaper, old);
    path_changed(path);
}

/* Makes the AH of 'path' be one of 'attr'; the same attributes keep the AH.
 * Returns 0 or a positive errno value, and then the AH is as it was.  Sets
 * '*changed' if it is another one. */
static int
path_set_ah(struct ipoib_path *path, const struct ibv_ah_attr *attr,
            bool *changed)
{
    struct ipoib_path_table *table = path->table;
    struct ibv_ah *ah, *old;

    if (path->ah && !memcmp(attr, &path->attr, sizeof *attr)) {
        return 0;
    }
    ah = ipoib_ah_get(table->reaper, table->pd, attr);
    if (!ah) {
        return errno ? errno : EIO;
    }
    old = path->ah;
    path->ah = ah;
    path->attr = *attr;
    *changed = true;
    ipoib_ah_retire(table->reaper, old);
    return 0;
}

/* A traffic class is seen in a GRH only. */
static bool
path_needs_grh(const struct ipoib_path_params *params,
               const struct ibv_ah_attr *attr)
{
    return params->needs_grh || params->sets_tclass || attr->grh.hop_limit;
}

static void
path_rec_to_attr(const struct ipoib_path *path,
                 const struct ib_path_record *rec, struct ibv_ah_attr *attr)
{
    const struct ipoib_path_params *params = &path->table->params;
    uint32_t raw_flow_hop = ntohl(rec->raw_flow_hop);

    /* memset() for memcmp()'s sake: there are holes. */
    memset(attr, 0, sizeof *attr);
    attr->dlid = ntohs(rec->dlid);
    attr->sl = ntohs(rec->qos_sl) & 0xf;
    attr->static_rate = rec->rate & 0x3f;
    attr->src_path_bits = (ntohs(rec->slid) - params->lid)
                          & ((1u << params->lmc) - 1);
    attr->port_num = params->port;

    /* These always, so that a port can come to need them. */
    memcpy(attr->grh.dgid.raw, rec->dgid.raw, IB_GID_LEN);
    attr->grh.flow_label = raw_flow_hop >> 8 & 0xfffff;
    attr->grh.hop_limit = raw_flow_hop & 0xff;
    attr->grh.traffic_class = (params->sets_tclass ? params->grh_tclass
                               : rec->tclass);
    attr->grh.sgid_index = 0;
    attr->is_global = path_needs_grh(params, attr);
}

static uint8_t
path_mtu(const struct ipoib_path *path)
{
    uint8_t port_mtu = path->table->params.port_mtu;

    return port_mtu ? MIN(path->record_mtu, port_mtu) : path->record_mtu;
}

static void
path_succeed(struct ipoib_path *path, const struct ib_path_record *rec)
{
    bool changed = path->state != IPOIB_PATH_READY;
    struct ibv_ah_attr attr;
    uint8_t old_mtu;

    path_rec_to_attr(path, rec, &attr);
    path->last_error = path_set_ah(path, &attr, &changed);
    if (path->last_error) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "failed to make an address handle to LID %"PRIu16
                     " (%s)", attr.dlid, ovs_strerror(path->last_error));
        path_fail(path, false);
        return;
    }

    old_mtu = path->mtu;
    path->record_mtu = rec->mtu & 0x3f;
    path->mtu = path_mtu(path);
    path->dlid = attr.dlid;
    path->sl = attr.sl;
    path->tclass = attr.grh.traffic_class;
    path->rate = attr.static_rate;
    path->hop_limit = attr.grh.hop_limit;
    path->resolved = path_now(path->table);
    path->n_failures = 0;
    path->next_try = 0;
    path->stale = false;
    path->state = IPOIB_PATH_READY;
    if (changed || path->mtu != old_mtu) {
        path_changed(path);
    }
}

/* Returns true if 'rec' is something to send by, and what was asked for. */
static bool
path_rec_is_good(const struct ipoib_path_params *params,
                 const struct ib_path_record *rec)
{
    uint16_t dlid = ntohs(rec->dlid);

    return dlid && dlid < IB_LID_MULTICAST && ib_mtu_bytes(rec->mtu & 0x3f)
           && (!params->wants_sl || (ntohs(rec->qos_sl) & 0xf) == params->sl);
}

static void
path_answer(void *path_, int error, uint16_t status,
            const struct ib_sa_mad *mad)
{
    struct ipoib_path *path = path_;
    bool final;

    path->request = NULL;
    path->table->n_requests--;
    path->last_error = error;
    path->last_status = status;
    if (!error && !status) {
        const struct ib_path_record *rec
            = ALIGNED_CAST(const struct ib_path_record *, mad->data);

        if (path_rec_is_good(&path->table->params, rec)) {
            path_succeed(path, rec);
            return;
        }
        COVERAGE_INC(ipoib_path_bad_record);
        path->last_error = EPROTO;
    }

    final = !error && (status == IB_SA_NO_RECORDS
                       || status == IB_SA_REQ_INVALID_GID);
    if (VLOG_IS_DBG_ENABLED()) {
        struct ds ds = DS_EMPTY_INITIALIZER;

        ib_gid_format(&path->dgid, &ds);
        VLOG_DBG("path to %s: %s", ds_cstr(&ds),
                 path->last_error ? ovs_strerror(path->last_error)
                                  : ib_sa_status_to_string(status));
        ds_destroy(&ds);
    }
    path_fail(path, final);
}

static bool
path_params_equal(const struct ipoib_path_params *a,
                  const struct ipoib_path_params *b)
{
    return ib_gid_equals(&a->sgid, &b->sgid) && a->port == b->port
           && a->lid == b->lid && a->lmc == b->lmc && a->pkey == b->pkey
           && a->tclass == b->tclass && a->needs_grh == b->needs_grh
           && a->port_mtu == b->port_mtu && a->wants_sl == b->wants_sl
           && a->sl == b->sl && a->sets_tclass == b->sets_tclass
           && a->grh_tclass == b->grh_tclass;
}

/* Returns an array of all paths, of which there are '*n', for a walk whose
 * callbacks may make new ones.  The caller frees it. */
static struct ipoib_path **
path_snapshot(const struct ipoib_path_table *table, size_t *n)
{
    struct ipoib_path **paths = xmalloc((hmap_count(&table->paths) + 1)
                                        * sizeof *paths);
    struct ipoib_path *path;

    *n = 0;
    HMAP_FOR_EACH (path, node, &table->paths) {
        paths[(*n)++] = path;
    }
    return paths;
}

/* Path bits that the port no longer has, and a GRH that it now needs, cannot
 * wait for the SA. */
static void
path_apply_params(struct ipoib_path *path)
{
    const struct ipoib_path_params *params = &path->table->params;
    struct ibv_ah_attr attr = path->attr;
    uint8_t old_mtu = path->mtu;
    bool changed = false;

    attr.src_path_bits &= (1u << params->lmc) - 1;
    attr.port_num = params->port;
    attr.is_global = path_needs_grh(params, &attr);
    path->last_error = path_set_ah(path, &attr, &changed);
    path->mtu = path_mtu(path);
    if (changed || path->mtu != old_mtu) {
        path_changed(path);
    }
}

void
ipoib_path_table_set_params(struct ipoib_path_table *table,
                            const struct ipoib_path_params *params)
{
    struct ipoib_path **paths;
    size_t n;

    if (table->have_params && path_params_equal(params, &table->params)) {
        return;
    }
    table->params = *params;
    table->have_params = true;

    paths = path_snapshot(table, &n);
    for (size_t i = 0; i < n; i++) {
        if (paths[i]->state == IPOIB_PATH_READY) {
            path_apply_params(paths[i]);
        }
    }
    free(paths);
    ipoib_path_refresh_all(table);
}

static uint32_t
path_hash(const struct ib_gid *dgid)
{
    return hash_bytes(dgid, sizeof *dgid, 0);
}

struct ipoib_path *
ipoib_path_ref(struct ipoib_path_table *table, const struct ib_gid *dgid)
{
    uint32_t hash = path_hash(dgid);
    struct ipoib_path *path;

    HMAP_FOR_EACH_WITH_HASH (path, node, hash, &table->paths) {
        if (ib_gid_equals(&path->dgid, dgid)) {
            path->n_users++;
            ipoib_path_poke(path);
            return path;
        }
    }

    path = xzalloc(sizeof *path);
    path->table = table;
    path->dgid = *dgid;
    path->state = IPOIB_PATH_RESOLVING;
    path->n_users = 1;
    ovs_list_init(&path->todo);
    hmap_insert(&table->paths, &path->node, hash);
    path_enqueue(path, true);
    return path;
}

void
ipoib_path_unref(struct ipoib_path *path)
{
    if (path) {
        ovs_assert(path->n_users);
        if (!--path->n_users) {
            path->unused_since = path_now(path->table);
            path_schedule(path->table,
                          path->unused_since + PATH_UNUSED_TIMEOUT);
        }
    }
}

void
ipoib_path_poke(struct ipoib_path *path)
{
    if (path->state == IPOIB_PATH_FAILED && !path->request
        && path_now(path->table) >= path->next_try) {
        path->state = IPOIB_PATH_RESOLVING;
        path_enqueue(path, true);
        path_changed(path);
    }
}

void
ipoib_path_suspect(struct ipoib_path *path)
{
    long long int now = path_now(path->table);

    if (path->state == IPOIB_PATH_READY && !path->request
        && !path_is_enqueued(path)
        && now >= path->last_asked + PATH_SUSPECT_PAUSE
        && now >= path->next_try) {
        path->stale = true;
        path_enqueue(path, true);
    }
}

static void
path_refresh(struct ipoib_path *path)
{
    if (path->request) {
        /* It asks with what may be out of date. */
        path_cancel(path);
    }
    path->n_failures = 0;
    path->next_try = 0;
    if (path->state == IPOIB_PATH_READY) {
        path->stale = true;
        path_enqueue(path, false);
    } else if (path->state == IPOIB_PATH_RESOLVING) {
        path_enqueue(path, true);
    } else if (path->n_users) {
        path->state = IPOIB_PATH_RESOLVING;
        path_enqueue(path, true);
        path_changed(path);
    }
}

void
ipoib_path_refresh_all(struct ipoib_path_table *table)
{
    size_t n;
    struct ipoib_path **paths = path_snapshot(table, &n);

    table->grace = path_now(table) + PATH_GRACE;
    for (size_t i = 0; i < n; i++) {
        path_refresh(paths[i]);
    }
    free(paths);
}

/* Looks at 'path' for what is due by time. */
static void
path_scan(struct ipoib_path *path, long long int now)
{
    struct ipoib_path_table *table = path->table;

    if (!path->n_users) {
        long long int due = path->unused_since + PATH_UNUSED_TIMEOUT;

        if (now >= due) {
            path_destroy(path);
            return;
        }
        path_schedule(table, due);
    }
    if (path->state == IPOIB_PATH_READY && path->stale && !path->request
        && !path_is_enqueued(path)) {
        if (now >= path->next_try) {
            path_enqueue(path, false);
        } else {
            path_schedule(table, path->next_try);
        }
    }
}

void
ipoib_path_table_run(struct ipoib_path_table *table, long long int now)
{
    table->now = now;
    if (now >= table->next_scan && now >= table->last_scan + PATH_SCAN_PAUSE) {
        struct ipoib_path *path;

        table->next_scan = LLONG_MAX;
        table->last_scan = now;
        HMAP_FOR_EACH_SAFE (path, node, &table->paths) {
            path_scan(path, now);
        }
    }

    while (table->have_params && table->n_requests < PATH_WINDOW) {
        struct ovs_list *list = (!ovs_list_is_empty(&table->urgent)
                                 ? &table->urgent : &table->refresh);

        if (ovs_list_is_empty(list)) {
            break;
        }
        path_ask(CONTAINER_OF(ovs_list_front(list), struct ipoib_path, todo),
                 now);
    }
}

void
ipoib_path_table_wait(struct ipoib_path_table *table)
{
    if (table->next_scan != LLONG_MAX) {
        poll_timer_wait_until(MAX(table->next_scan,
                                  table->last_scan + PATH_SCAN_PAUSE));
    }
    if (table->have_params && table->n_requests < PATH_WINDOW
        && (!ovs_list_is_empty(&table->urgent)
            || !ovs_list_is_empty(&table->refresh))) {
        poll_immediate_wake();
    }
}

void
ipoib_path_for_each(const struct ipoib_path_table *table,
                    void (*cb)(const struct ipoib_path *, void *aux),
                    void *aux)
{
    const struct ipoib_path *path;

    HMAP_FOR_EACH (path, node, &table->paths) {
        cb(path, aux);
    }
}

const char *
ipoib_path_state_to_string(enum ipoib_path_state state)
{
    switch (state) {
    case IPOIB_PATH_RESOLVING: return "resolving";
    case IPOIB_PATH_READY: return "ready";
    case IPOIB_PATH_FAILED: return "failed";
    default: OVS_NOT_REACHED();
    }
}
