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
#include "host-tun.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "coverage.h"
#include "netlink.h"
#include "netlink-socket.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "socket-util.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(host_tun);

COVERAGE_DEFINE(host_tun_write_error);
COVERAGE_DEFINE(host_tun_route_query);

/* <linux/if_link.h> may lack them. */
#define TUN_ADDR_GEN_MODE 8         /* IFLA_INET6_ADDR_GEN_MODE. */
#define TUN_ADDR_GEN_MODE_NONE 1    /* IN6_ADDR_GEN_MODE_NONE. */

struct host_tun {
    char *name;
    int fd;
    int ifindex;
    int mtu;
    bool carrier;
    struct nl_sock *notify;     /* Addresses and routes. */
};

/* Sends a request for 'tun''s link, as 'ip link set' does: flags (up), the MTU
 * if it is nonzero, and whether the kernel makes a link-local address. */
static int
tun_set_link(struct host_tun *tun, bool up, int mtu, bool no_addr_gen)
{
    struct ofpbuf request;
    struct ifinfomsg *ifi;
    int error;

    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof *ifi, RTM_NEWLINK,
                        NLM_F_REQUEST | NLM_F_ACK);
    ifi = ofpbuf_put_zeros(&request, sizeof *ifi);
    ifi->ifi_family = AF_UNSPEC;
    ifi->ifi_index = tun->ifindex;
    if (up) {
        ifi->ifi_flags = ifi->ifi_change = IFF_UP;
    }
    if (mtu) {
        nl_msg_put_u32(&request, IFLA_MTU, mtu);
    }
    if (no_addr_gen) {
        size_t af_spec = nl_msg_start_nested(&request, IFLA_AF_SPEC);
        size_t inet6 = nl_msg_start_nested(&request, AF_INET6);

        nl_msg_put_u8(&request, TUN_ADDR_GEN_MODE, TUN_ADDR_GEN_MODE_NONE);
        nl_msg_end_nested(&request, inet6);
        nl_msg_end_nested(&request, af_spec);
    }
    error = nl_transact(NETLINK_ROUTE, &request, NULL);
    ofpbuf_uninit(&request);
    return error;
}

static int
tun_create(struct host_tun *tun, char **errp)
{
    struct ifreq ifr;
    int error;

    tun->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tun->fd < 0) {
        error = errno;
        *errp = xasprintf("/dev/net/tun: %s", ovs_strerror(error));
        return error;
    }

    memset(&ifr, 0, sizeof ifr);
    ovs_strzcpy(ifr.ifr_name, tun->name, sizeof ifr.ifr_name);
    ifr.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (ioctl(tun->fd, TUNSETIFF, &ifr)) {
        error = errno;
        *errp = xasprintf("--tun=%s: cannot make the TUN device: %s%s",
                          tun->name, ovs_strerror(error),
                          error == EPERM ? " (this needs CAP_NET_ADMIN)"
                          : error == EBUSY ? " (a station that still runs?)"
                          : "");
        return error;
    }
    tun->ifindex = if_nametoindex(tun->name);
    if (!tun->ifindex) {
        error = errno;
        *errp = xasprintf("--tun=%s: no such device: %s", tun->name,
                          ovs_strerror(error));
        return error;
    }
    return 0;
}

static int
tun_subscribe(struct host_tun *tun, char **errp)
{
    static const unsigned int groups[] = {
        RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR,
        RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
    };
    int error = nl_sock_create(NETLINK_ROUTE, &tun->notify);

    for (size_t i = 0; !error && i < ARRAY_SIZE(groups); i++) {
        error = nl_sock_join_mcgroup(tun->notify, groups[i]);
    }
    if (error) {
        *errp = xasprintf("cannot subscribe to the kernel's addresses and "
                          "routes: %s", ovs_strerror(error));
    }
    return error;
}

int
host_tun_open(const char *name, struct host_tun **tunp, char **errp)
{
    struct host_tun *tun;
    int error;

    *tunp = NULL;
    if (!name[0] || strlen(name) >= IFNAMSIZ || strpbrk(name, "/% \t")) {
        *errp = xasprintf("--tun=%s: not a name for a network device", name);
        return EINVAL;
    }

    tun = xzalloc(sizeof *tun);
    tun->name = xstrdup(name);
    tun->fd = -1;
    tun->carrier = true;
    error = tun_create(tun, errp);
    if (!error) {
        error = tun_subscribe(tun, errp);
    }
    if (!error) {
        /* The link-local address comes from the port GUID, not from the
         * kernel.  Without IPv6 in the kernel this fails, which is fine. */
        if (tun_set_link(tun, false, 0, true)) {
            VLOG_DBG("%s: no IPv6 in this network namespace", name);
        }
        host_tun_set_carrier(tun, false);
        error = tun_set_link(tun, true, 0, false);
        if (error) {
            *errp = xasprintf("--tun=%s: cannot set the device up: %s", name,
                              ovs_strerror(error));
        }
    }
    if (error) {
        host_tun_close(tun);
        return error;
    }
    *tunp = tun;
    return 0;
}

void
host_tun_close(struct host_tun *tun)
{
    if (tun) {
        nl_sock_destroy(tun->notify);
        if (tun->fd >= 0) {
            close(tun->fd);
        }
        free(tun->name);
        free(tun);
    }
}

const char *
host_tun_name(const struct host_tun *tun)
{
    return tun->name;
}

static int
tun_change_ip(struct host_tun *tun, const struct host_ip *ip, int type,
              int flags)
{
    struct ofpbuf request;
    struct ifaddrmsg *ifa;
    bool v4 = IN6_IS_ADDR_V4MAPPED(&ip->addr);
    int error;

    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof *ifa, type,
                        NLM_F_REQUEST | NLM_F_ACK | flags);
    ifa = ofpbuf_put_zeros(&request, sizeof *ifa);
    ifa->ifa_family = v4 ? AF_INET : AF_INET6;
    ifa->ifa_prefixlen = ip->plen;
    ifa->ifa_index = tun->ifindex;
    ifa->ifa_scope = (IN6_IS_ADDR_LINKLOCAL(&ip->addr)
                      ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE);
    if (v4) {
        ovs_be32 addr = in6_addr_get_mapped_ipv4(&ip->addr);

        nl_msg_put_be32(&request, IFA_LOCAL, addr);
        nl_msg_put_be32(&request, IFA_ADDRESS, addr);
        if (ip->plen < 31) {
            nl_msg_put_be32(&request, IFA_BROADCAST,
                            addr | ~be32_prefix_mask(ip->plen));
        }
    } else {
        nl_msg_put_in6_addr(&request, IFA_LOCAL, &ip->addr);
        nl_msg_put_in6_addr(&request, IFA_ADDRESS, &ip->addr);
    }
    error = nl_transact(NETLINK_ROUTE, &request, NULL);
    ofpbuf_uninit(&request);
    return error;
}

int
host_tun_add_ip(struct host_tun *tun, const struct host_ip *ip)
{
    return tun_change_ip(tun, ip, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
}

int
host_tun_del_ip(struct host_tun *tun, const struct host_ip *ip)
{
    return tun_change_ip(tun, ip, RTM_DELADDR, 0);
}

int
host_tun_set_mtu(struct host_tun *tun, int mtu)
{
    int error = 0;

    if (mtu != tun->mtu) {
        error = tun_set_link(tun, false, mtu, false);
        if (!error) {
            tun->mtu = mtu;
        }
    }
    return error;
}

int
host_tun_set_carrier(struct host_tun *tun, bool up)
{
    int carrier = up;

    if (up == tun->carrier) {
        return 0;
    }
    tun->carrier = up;
#ifdef TUNSETCARRIER
    if (ioctl(tun->fd, TUNSETCARRIER, &carrier)) {
        return errno;
    }
#endif
    return 0;
}

bool
host_tun_is_router(const struct host_tun *tun)
{
    char *name = xasprintf("/proc/sys/net/ipv6/conf/%s/forwarding", tun->name);
    FILE *file = fopen(name, "r");
    int value = 0;

    if (file) {
        if (fscanf(file, "%d", &value) != 1) {
            value = 0;
        }
        fclose(file);
    }
    free(name);
    return value != 0;
}

size_t
host_tun_read(struct host_tun *tun, void *data, size_t size)
{
    ssize_t n;

    do {
        n = read(tun->fd, data, size);
    } while (n < 0 && errno == EINTR);
    return n > 0 ? n : 0;
}

int
host_tun_write(struct host_tun *tun, const void *data, size_t len)
{
    ssize_t n;

    do {
        n = write(tun->fd, data, len);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        COVERAGE_INC(host_tun_write_error);
        return errno;
    }
    return 0;
}

/* Addresses. */

static bool
tun_parse_ip(const struct host_tun *tun, const struct ofpbuf *msg,
             struct host_ip *ip)
{
    static const struct nl_policy policy[] = {
        [IFA_LOCAL] = { .type = NL_A_UNSPEC, .min_len = 4, .optional = true },
        [IFA_ADDRESS] = { .type = NL_A_UNSPEC, .min_len = 4,
                          .optional = true },
    };
    struct nlattr *attrs[ARRAY_SIZE(policy)];
    const struct ifaddrmsg *ifa;
    const struct nlattr *a;

    ifa = ofpbuf_at(msg, NLMSG_HDRLEN, sizeof *ifa);
    if (!ifa || (int) ifa->ifa_index != tun->ifindex
        || !nl_policy_parse(msg, NLMSG_HDRLEN + sizeof *ifa, policy, attrs,
                            ARRAY_SIZE(policy))) {
        return false;
    }
    a = attrs[IFA_LOCAL] ? attrs[IFA_LOCAL] : attrs[IFA_ADDRESS];
    if (!a) {
        return false;
    }
    ip->plen = ifa->ifa_prefixlen;
    if (ifa->ifa_family == AF_INET) {
        in6_addr_set_mapped_ipv4(&ip->addr, nl_attr_get_be32(a));
        return true;
    } else if (ifa->ifa_family == AF_INET6
               && nl_attr_get_size(a) >= sizeof ip->addr) {
        ip->addr = nl_attr_get_in6_addr(a);
        return true;
    }
    return false;
}

int
host_tun_get_ips(struct host_tun *tun, struct host_ip **ipsp, size_t *np)
{
    uint64_t reply_stub[NL_DUMP_BUFSIZE / 8];
    struct host_ip *ips = NULL;
    size_t n = 0, allocated = 0;
    struct ofpbuf request, reply, buf;
    struct nl_dump dump;
    int error;

    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof(struct ifaddrmsg), RTM_GETADDR,
                        NLM_F_REQUEST);
    ofpbuf_put_zeros(&request, sizeof(struct ifaddrmsg));
    nl_dump_start(&dump, NETLINK_ROUTE, &request);
    ofpbuf_uninit(&request);

    ofpbuf_use_stub(&buf, reply_stub, sizeof reply_stub);
    while (nl_dump_next(&dump, &reply, &buf)) {
        struct host_ip ip;

        if (tun_parse_ip(tun, &reply, &ip)) {
            if (n >= allocated) {
                ips = x2nrealloc(ips, &allocated, sizeof *ips);
            }
            ips[n++] = ip;
        }
    }
    ofpbuf_uninit(&buf);
    error = nl_dump_done(&dump);

    *ipsp = ips;
    *np = n;
    return error;
}

/* Groups. */

struct tun_groups {
    struct in6_addr *groups;
    size_t n, allocated;
};

static void
tun_groups_add(struct tun_groups *g, const struct in6_addr *group)
{
    if (g->n >= g->allocated) {
        g->groups = x2nrealloc(g->groups, &g->allocated, sizeof *g->groups);
    }
    g->groups[g->n++] = *group;
}

/* /proc/net/igmp: a line "INDEX NAME : ..." for each device, followed by
 * indented lines that begin with the group, as a 32-bit number of the host's
 * byte order whose bytes are those of the address. */
static void
tun_read_igmp(const struct host_tun *tun, struct tun_groups *g)
{
    FILE *stream = fopen("/proc/thread-self/net/igmp", "r");
    bool ours = false;
    char line[256];

    if (!stream) {
        return;
    }
    while (fgets(line, sizeof line, stream)) {
        unsigned int x;

        if (line[0] >= '0' && line[0] <= '9') {
            ours = atoi(line) == tun->ifindex;
        } else if (ours && sscanf(line, "%8x", &x) == 1) {
            struct in6_addr group;
            ovs_be32 ip;

            memcpy(&ip, &x, sizeof ip);
            in6_addr_set_mapped_ipv4(&group, ip);
            tun_groups_add(g, &group);
        }
    }
    fclose(stream);
}

/* /proc/net/igmp6: "INDEX NAME GROUP ...", with the group in 32 hex digits. */
static void
tun_read_igmp6(const struct host_tun *tun, struct tun_groups *g)
{
    FILE *stream = fopen("/proc/thread-self/net/igmp6", "r");
    char line[256];

    if (!stream) {
        return;
    }
    while (fgets(line, sizeof line, stream)) {
        struct in6_addr group;
        char hex[33];
        int index;

        if (sscanf(line, "%d %*s %32[0-9a-f]", &index, hex) != 2
            || index != tun->ifindex || strlen(hex) != 32) {
            continue;
        }
        for (int i = 0; i < 16; i++) {
            bool ok;

            group.s6_addr[i] = hexits_value(&hex[i * 2], 2, &ok);
        }
        /* Groups of interface scope never leave the machine. */
        if (!IN6_IS_ADDR_MC_NODELOCAL(&group)) {
            tun_groups_add(g, &group);
        }
    }
    fclose(stream);
}

void
host_tun_get_groups(struct host_tun *tun, struct in6_addr **groups, size_t *n)
{
    struct tun_groups g = { NULL, 0, 0 };

    tun_read_igmp(tun, &g);
    tun_read_igmp6(tun, &g);
    *groups = g.groups;
    *n = g.n;
}

/* Routes. */

static enum host_route_type
tun_parse_route(const struct ofpbuf *reply, const struct in6_addr *dst,
                struct in6_addr *next_hop)
{
    static const struct nl_policy policy[] = {
        [RTA_GATEWAY] = { .type = NL_A_UNSPEC, .min_len = 4,
                          .optional = true },
    };
    struct nlattr *attrs[ARRAY_SIZE(policy)];
    const struct nlattr *gateway;
    const struct rtmsg *rtm;

    rtm = ofpbuf_at(reply, NLMSG_HDRLEN, sizeof *rtm);
    if (!rtm || !nl_policy_parse(reply, NLMSG_HDRLEN + sizeof *rtm, policy,
                                 attrs, ARRAY_SIZE(policy))) {
        return HOST_ROUTE_NONE;
    }
    if (rtm->rtm_type == RTN_BROADCAST) {
        return HOST_ROUTE_BROADCAST;
    } else if (rtm->rtm_type != RTN_UNICAST) {
        return HOST_ROUTE_NONE;
    }

    *next_hop = *dst;
    gateway = attrs[RTA_GATEWAY];
    if (gateway) {
        if (rtm->rtm_family == AF_INET) {
            in6_addr_set_mapped_ipv4(next_hop, nl_attr_get_be32(gateway));
        } else if (nl_attr_get_size(gateway) >= sizeof *next_hop) {
            *next_hop = nl_attr_get_in6_addr(gateway);
        }
    }
    return HOST_ROUTE_UNICAST;
}

enum host_route_type
host_tun_get_route(struct host_tun *tun, const struct in6_addr *dst,
                   struct in6_addr *next_hop)
{
    enum host_route_type type = HOST_ROUTE_NONE;
    bool v4 = IN6_IS_ADDR_V4MAPPED(dst);
    struct ofpbuf request, *reply;
    struct rtmsg *rtm;

    COVERAGE_INC(host_tun_route_query);
    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof *rtm, RTM_GETROUTE, NLM_F_REQUEST);
    rtm = ofpbuf_put_zeros(&request, sizeof *rtm);
    rtm->rtm_family = v4 ? AF_INET : AF_INET6;
    rtm->rtm_dst_len = v4 ? 32 : 128;
    if (v4) {
        nl_msg_put_be32(&request, RTA_DST, in6_addr_get_mapped_ipv4(dst));
    } else {
        nl_msg_put_in6_addr(&request, RTA_DST, dst);
    }
    nl_msg_put_u32(&request, RTA_OIF, tun->ifindex);
    if (!nl_transact(NETLINK_ROUTE, &request, &reply)) {
        type = tun_parse_route(reply, dst, next_hop);
        ofpbuf_delete(reply);
    }
    ofpbuf_uninit(&request);
    return type;
}

bool
host_tun_run(struct host_tun *tun)
{
    uint64_t stub[4096 / 8];
    struct ofpbuf buf;
    bool changed = false;

    ofpbuf_use_stub(&buf, stub, sizeof stub);
    for (int i = 0; i < 64; i++) {
        int error = nl_sock_recv(tun->notify, &buf, NULL, false);

        if (error == EAGAIN) {
            break;
        }
        changed = true;
        if (error && error != ENOBUFS) {
            break;
        }
    }
    ofpbuf_uninit(&buf);
    return changed;
}

void
host_tun_wait(struct host_tun *tun, bool packets)
{
    nl_sock_wait(tun->notify, POLLIN);
    if (packets) {
        poll_fd_wait(tun->fd, POLLIN);
    }
}
