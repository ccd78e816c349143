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
#include "fabric-sma.h"

#include <stddef.h>
#include <string.h>

#include "fabric.h"
#include "unaligned.h"
#include "util.h"

/* Statuses (13.4.7). */
#define STATUS_UNSUPPORTED 0x000c
#define STATUS_INVALID     0x001c

#define ATTR_NODE_DESCRIPTION 0x0010
#define ATTR_NODE_INFO        0x0011
#define ATTR_SWITCH_INFO      0x0012
#define ATTR_GUID_INFO        0x0014
#define ATTR_PORT_INFO        0x0015
#define ATTR_PKEY_TABLE       0x0016
#define ATTR_SL2VL            0x0017
#define ATTR_VL_ARB           0x0018
#define ATTR_LFT              0x0019
#define ATTR_MFT              0x001b

#define TRAP_LINK_STATE    128
#define TRAP_LOCAL_CHANGES 144

/* P_Keys, LIDs and MLIDs in an SMP. */
#define PKEYS_BLOCK 32
#define LFT_BLOCK   64
#define MFT_BLOCK   32

/* An SMP at an agent. */
struct call {
    struct fabric_lport *at;    /* Where it came in. */
    struct fabric_node *node;
    bool set;
    uint32_t mod;
    uint8_t *data;
    fabric_sma_changed_cb *changed;
    void *aux;
};

/* NodeInfo (14.2.5.3). */
struct node_info {
    uint8_t base_version, class_version;
    uint8_t type, n_ports;
    ovs_be32 system_guid[2], node_guid[2], port_guid[2];
    ovs_be16 partition_cap;
    ovs_be16 device_id;
    ovs_be32 revision;
    uint8_t local_port;
    uint8_t vendor_id[3];
};
BUILD_ASSERT_DECL(sizeof(struct node_info) == 40);

/* SwitchInfo (14.2.5.4). */
struct switch_info {
    ovs_be16 lft_cap, random_cap, mft_cap;
    ovs_be16 lft_top;
    uint8_t default_port, default_primary, default_not_primary;
    uint8_t life_change;        /* LifeTimeValue (5), PortStateChange (1). */
    ovs_be16 lids_per_port;
    ovs_be16 partition_cap;
    uint8_t flags, reserved;
    ovs_be16 mft_top;
};
BUILD_ASSERT_DECL(sizeof(struct switch_info) == 20);
#define PORT_STATE_CHANGE 0x04

static void
put_guid(ovs_be32 dst[2], uint64_t guid)
{
    dst[0] = htonl(guid >> 32);
    dst[1] = htonl(guid);
}

void
fabric_sma_node_info(const struct fabric_lport *lport, uint8_t data[64])
{
    const struct fabric_node *node = lport->node;
    struct node_info info = {
        .base_version = 1,
        .class_version = 1,
        .type = node->type,
        .n_ports = node->n_ports,
        .partition_cap = htons(IB_SOFT_MAX_PKEYS),
        .device_id = htons(node->type),
        .revision = htonl(1),
        .local_port = lport->num,
    };

    put_guid(info.system_guid, node->guid);
    put_guid(info.node_guid, node->guid);
    put_guid(info.port_guid, node->port_guid);
    memset(data, 0, FABRIC_SMP_DATA_LEN);
    memcpy(data, &info, sizeof info);
}

void
fabric_sma_port_info(const struct fabric_lport *lport, uint8_t data[64])
{
    struct fabric_port_info info = lport->info;

    info.speed_state = (info.speed_state & 0xf0) | lport->state;
    info.phys_default = lport->phys_state << 4 | (info.phys_default & 0xf);
    memcpy(data, &info, sizeof info);
}

static uint16_t
node_description(struct call *call)
{
    if (call->set) {
        return STATUS_UNSUPPORTED;
    }
    memcpy(call->data, call->node->description, FABRIC_SMP_DATA_LEN);
    return 0;
}

static uint16_t
node_info(struct call *call)
{
    if (call->set) {
        return STATUS_UNSUPPORTED;
    }
    fabric_sma_node_info(call->at, call->data);
    return 0;
}

static uint16_t
switch_info(struct call *call)
{
    struct fabric_node *sw = call->node;
    struct switch_info info;

    if (sw->type != FABRIC_NODE_SWITCH) {
        return STATUS_UNSUPPORTED;
    }
    if (call->set) {
        memcpy(&info, call->data, sizeof info);
        sw->lft_top = ntohs(info.lft_top);
        sw->mft_top = ntohs(info.mft_top);
        sw->life_time = info.life_change >> 3;
        if (info.life_change & PORT_STATE_CHANGE) {
            sw->port_change = false;
            sw->n_traps = 0;
        }
    }
    info = (struct switch_info) {
        .lft_cap = htons(IB_LID_MULTICAST - 1),
        .mft_cap = htons(FABRIC_MFT_ENTRIES),
        .lft_top = htons(sw->lft_top),
        .life_change = (sw->life_time << 3
                        | (sw->port_change ? PORT_STATE_CHANGE : 0)),
        .mft_top = htons(sw->mft_top),
    };
    memset(call->data, 0, FABRIC_SMP_DATA_LEN);
    memcpy(call->data, &info, sizeof info);
    return 0;
}

static uint16_t
guid_info(struct call *call)
{
    ovs_be32 guid[2];

    if (call->set) {
        return STATUS_UNSUPPORTED;
    }
    memset(call->data, 0, FABRIC_SMP_DATA_LEN);
    if (!call->mod) {
        put_guid(guid, call->node->port_guid);
        memcpy(call->data, guid, sizeof guid);
    }
    return 0;
}

/* Returns port 'num' of the node, or the only one of a CA, for which 0 stands
 * too, or NULL. */
static struct fabric_lport *
port_of(const struct call *call, unsigned int num)
{
    if (call->node->type == FABRIC_NODE_CA) {
        return num <= 1 ? &call->node->ports[1] : NULL;
    }
    return num <= call->node->n_ports ? &call->node->ports[num] : NULL;
}

/* Takes over the states that 'new' asks for.  Returns false if 'lport' cannot
 * get there. */
static bool
set_states(struct fabric_lport *lport, const struct fabric_port_info *new)
{
    uint8_t state = new->speed_state & 0xf;
    uint8_t phys_state = new->phys_default >> 4;

    if (lport->node->type == FABRIC_NODE_SWITCH && !lport->num) {
        return true;
    }
    if (phys_state == FABRIC_PHYS_DISABLED
        || phys_state == FABRIC_PHYS_POLLING) {
        lport->disabled = phys_state == FABRIC_PHYS_DISABLED;
        fabric_link_retrain(lport);
    } else if (state == FABRIC_PORT_DOWN) {
        fabric_link_retrain(lport);
    } else if (state == FABRIC_PORT_ARMED || state == FABRIC_PORT_ACTIVE) {
        if (lport->state < state - 1) {
            return false;
        }
        lport->state = state;
    } else if (state) {
        return false;
    }
    return true;
}

/* Copies from 'new' what belongs to a port that has LIDs. */
static bool
set_addresses(struct fabric_lport *lport, const struct fabric_port_info *new)
{
    struct fabric_port_info *info = &lport->info;
    uint16_t lid = ntohs(new->lid);
    uint8_t lmc = new->mkey_lmc & 7;

    if (!lid || lid + (1 << lmc) > IB_LID_MULTICAST
        || lid & ((1 << lmc) - 1)) {
        return false;
    }
    info->lid = new->lid;
    info->mkey_lmc = new->mkey_lmc & 0xc7;
    info->sm_lid = new->sm_lid;
    memcpy(info->prefix, new->prefix, sizeof info->prefix);
    info->rereg_timeout = new->rereg_timeout & 0x1f;
    info->mtu_sm_sl = (info->mtu_sm_sl & 0xf0) | (new->mtu_sm_sl & 0xf);
    return true;
}

/* Copies from 'new' what belongs to each port. */
static bool
set_link(struct fabric_lport *lport, const struct fabric_port_info *new)
{
    struct fabric_port_info *info = &lport->info;
    uint8_t mtu = new->mtu_sm_sl >> 4;
    uint8_t vls = new->vls_enforce >> 4;

    if (mtu > (info->init_mtu & 0xf) || vls > info->vl_init >> 4) {
        return false;
    }
    if (mtu) {
        info->mtu_sm_sl = mtu << 4 | (info->mtu_sm_sl & 0xf);
    }
    info->vls_enforce = ((vls ? vls << 4 : info->vls_enforce & 0xf0)
                         | (new->vls_enforce & 0xf));
    if (new->width_enabled && new->width_enabled != UINT8_MAX) {
        info->width_enabled = new->width_enabled & info->width_supported;
    }
    memcpy(info->mkey, new->mkey, sizeof info->mkey);
    info->mkey_lease = new->mkey_lease;
    info->phys_default = new->phys_default & 0xf;
    info->vl_high_limit = new->vl_high_limit;
    info->stall_hoq = new->stall_hoq;
    info->errors = new->errors;
    memset(info->violations, 0, sizeof info->violations);
    return true;
}

static uint16_t
set_port_info(struct call *call, struct fabric_lport *lport)
{
    struct fabric_lport *peer = lport->peer;
    struct fabric_port_info new;
    bool has_lid, ok;

    memcpy(&new, call->data, sizeof new);
    has_lid = lport == fabric_node_lid_port(lport->node);
    ok = ((!has_lid || set_addresses(lport, &new))
          && set_link(lport, &new) && set_states(lport, &new));
    call->changed(lport, has_lid && new.rereg_timeout >> 7, call->aux);
    if (peer) {
        call->changed(peer, false, call->aux);
    }
    return ok ? 0 : STATUS_INVALID;
}

static uint16_t
port_info(struct call *call)
{
    /* The top bits say what the manager itself is capable of. */
    struct fabric_lport *lport = port_of(call, call->mod & 0xff);
    uint16_t status = 0;

    if (!lport) {
        return STATUS_INVALID;
    }
    if (call->set) {
        status = set_port_info(call, lport);
    }
    fabric_sma_port_info(lport, call->data);
    call->data[offsetof(struct fabric_port_info, local_port)] = call->at->num;
    return status;
}

static uint16_t
pkey_table(struct call *call)
{
    struct fabric_lport *lport = port_of(call, call->mod >> 16);
    unsigned int block = call->mod & 0xffff;
    ovs_be16 *pkeys;

    if (call->node->type == FABRIC_NODE_CA) {
        lport = &call->node->ports[1];
    }
    if (!lport || block >= IB_SOFT_MAX_PKEYS / PKEYS_BLOCK) {
        return STATUS_INVALID;
    }
    pkeys = &lport->pkeys[block * PKEYS_BLOCK];
    if (call->set) {
        memcpy(pkeys, call->data, PKEYS_BLOCK * sizeof *pkeys);
        call->changed(lport, false, call->aux);
    }
    memcpy(call->data, pkeys, PKEYS_BLOCK * sizeof *pkeys);
    return 0;
}

static uint16_t
sl2vl(struct call *call)
{
    bool is_switch = call->node->type == FABRIC_NODE_SWITCH;
    struct fabric_lport *out = port_of(call, is_switch ? call->mod & 0xff : 1);
    unsigned int in = is_switch ? call->mod >> 8 & 0xff : 0;

    if (!out || in > call->node->n_ports) {
        return STATUS_INVALID;
    }
    if (call->set) {
        memcpy(out->sl2vl[in], call->data, FABRIC_SL2VL_LEN);
    }
    memset(call->data, 0, FABRIC_SMP_DATA_LEN);
    memcpy(call->data, out->sl2vl[in], FABRIC_SL2VL_LEN);
    return 0;
}

static uint16_t
vl_arb(struct call *call)
{
    bool is_switch = call->node->type == FABRIC_NODE_SWITCH;
    struct fabric_lport *lport = port_of(call,
                                         is_switch ? call->mod & 0xffff : 1);
    unsigned int block = (call->mod >> 16) - 1;

    if (!lport || block >= FABRIC_VL_ARB_BLOCKS) {
        return STATUS_INVALID;
    }
    if (call->set) {
        memcpy(lport->vl_arb[block], call->data, FABRIC_SMP_DATA_LEN);
    }
    memcpy(call->data, lport->vl_arb[block], FABRIC_SMP_DATA_LEN);
    return 0;
}

static uint16_t
linear_table(struct call *call)
{
    uint8_t *block;

    if (call->node->type != FABRIC_NODE_SWITCH) {
        return STATUS_UNSUPPORTED;
    }
    if (call->mod >= IB_LID_MULTICAST / LFT_BLOCK) {
        return STATUS_INVALID;
    }
    block = call->node->lft + call->mod * LFT_BLOCK;
    if (call->set) {
        memcpy(block, call->data, LFT_BLOCK);
    }
    memcpy(call->data, block, LFT_BLOCK);
    return 0;
}

static uint16_t
multicast_table(struct call *call)
{
    unsigned int position = call->mod >> 28, block = call->mod & 0x1ff;
    uint64_t *mft = call->node->mft;

    if (!mft) {
        return STATUS_UNSUPPORTED;
    }
    if (block >= FABRIC_MFT_ENTRIES / MFT_BLOCK || position > 15) {
        return STATUS_INVALID;
    }
    if (position > FABRIC_SWITCH_PORTS / 16) {
        memset(call->data, 0, FABRIC_SMP_DATA_LEN);
        return 0;
    }
    mft += block * MFT_BLOCK;
    for (int i = 0; i < MFT_BLOCK; i++) {
        unsigned int shift = position * 16;
        ovs_be16 mask;

        if (call->set) {
            memcpy(&mask, call->data + 2 * i, sizeof mask);
            mft[i] &= ~(UINT64_C(0xffff) << shift);
            mft[i] |= (uint64_t) ntohs(mask) << shift;
        }
        mask = htons(mft[i] >> shift & 0xffff);
        memcpy(call->data + 2 * i, &mask, sizeof mask);
    }
    return 0;
}

static const struct {
    uint16_t attr;
    uint16_t (*handler)(struct call *);
} attributes[] = {
    { ATTR_NODE_DESCRIPTION, node_description },
    { ATTR_NODE_INFO, node_info },
    { ATTR_SWITCH_INFO, switch_info },
    { ATTR_GUID_INFO, guid_info },
    { ATTR_PORT_INFO, port_info },
    { ATTR_PKEY_TABLE, pkey_table },
    { ATTR_SL2VL, sl2vl },
    { ATTR_VL_ARB, vl_arb },
    { ATTR_LFT, linear_table },
    { ATTR_MFT, multicast_table },
};

static uint16_t
handle(struct call *call, const struct fabric_smp *smp)
{
    if (smp->method != IB_METHOD_GET && smp->method != IB_METHOD_SET) {
        return STATUS_UNSUPPORTED;
    }
    call->set = smp->method == IB_METHOD_SET;
    for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
        if (attributes[i].attr == ntohs(smp->attr_id)) {
            return attributes[i].handler(call);
        }
    }
    return STATUS_UNSUPPORTED;
}

/* Makes an answer with 'status' of 'smp'. */
static void
make_answer(struct fabric_smp *smp, uint16_t status)
{
    if (smp->mgmt_class == FABRIC_CLASS_SUBN_DR) {
        status |= FABRIC_SMP_DIRECTION;
    }
    smp->method = IB_METHOD_GET_RESP;
    smp->status = htons(status);
}

/* Makes the answer of an agent that does not know what 'smp' asks for. */
void
fabric_sma_refuse(struct fabric_smp *smp)
{
    make_answer(smp, STATUS_UNSUPPORTED);
}

/* Handles the request 'smp', which came in at 'at', and makes the answer of
 * it. */
void
fabric_sma_handle(struct fabric_lport *at, struct fabric_smp *smp,
                  fabric_sma_changed_cb *changed, void *aux)
{
    struct call call = {
        .at = at,
        .node = at->node,
        .mod = ntohl(smp->attr_mod),
        .data = smp->data,
        .changed = changed,
        .aux = aux,
    };

    make_answer(smp, handle(&call, smp));
}

/* Follows the directed route of 'smp' from the CA of 'from', and notes the
 * way back.  Returns the port at which it comes in at its end, or NULL if
 * there is no such way. */
struct fabric_lport *
fabric_sma_walk(struct fabric_lport *from, struct fabric_smp *smp)
{
    struct fabric_lport *at = from;

    if (smp->hop_count >= sizeof smp->initial_path) {
        return NULL;
    }
    for (int i = 1; i <= smp->hop_count; i++) {
        uint8_t out = smp->initial_path[i];
        struct fabric_node *node = at->node;

        if (!out || out > node->n_ports
            || (node->type == FABRIC_NODE_CA && i > 1)
            || !fabric_link_is_up(&node->ports[out])) {
            return NULL;
        }
        at = node->ports[out].peer;
        smp->return_path[i] = at->num;
    }
    return at;
}

/* Composes the trap that tells what happened to 'node': 128 (a link of a
 * switch changed its state) or 144 (capabilities or description changed). */
void
fabric_sma_compose_trap(const struct fabric_node *node, uint64_t tid,
                        struct fabric_smp *smp)
{
    const struct fabric_lport *lport = fabric_node_lid_port(node);
    struct ib_notice notice;
    ovs_be64 tid_be = htonll(tid);

    memset(smp, 0, sizeof *smp);
    smp->base_version = IB_MAD_BASE_VERSION;
    smp->mgmt_class = FABRIC_CLASS_SUBN;
    smp->class_version = 1;
    smp->method = FABRIC_METHOD_TRAP;
    memcpy(&smp->tid, &tid_be, sizeof tid_be);
    smp->attr_id = htons(IB_ATTR_NOTICE);

    memset(&notice, 0, sizeof notice);
    notice.producer[2] = node->type == FABRIC_NODE_SWITCH ? 2 : 1;
    notice.issuer_lid = lport->info.lid;
    if (node->port_change) {
        notice.generic_type = 0x80 | 1; /* Generic, urgent. */
        notice.trap_number = htons(TRAP_LINK_STATE);
        memcpy(notice.details, &lport->info.lid, sizeof lport->info.lid);
    } else {
        notice.generic_type = 0x80 | 4; /* Generic, informational. */
        notice.trap_number = htons(TRAP_LOCAL_CHANGES);
        memcpy(notice.details + 2, &lport->info.lid, sizeof lport->info.lid);
        notice.details[5] = 1;          /* Other local changes. */
        memcpy(notice.details + 6, &lport->info.cap_mask,
               sizeof lport->info.cap_mask);
        notice.details[11] = 1;         /* Node description changed. */
    }
    memcpy(smp->data, &notice, sizeof smp->data);
}
