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

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command-line.h"
#include "daemon.h"
#include "fatal-signal.h"
#include "hash.h"
#include "host-station.h"
#include "ipoib-compat.h"
#include "ipoib-soft.h"
#include "ipoib-verbs.h"
#include "latch.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "packets.h"
#include "svec.h"
#include "unixctl.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ovs_ipoib_host);

#define MAX_STATIONS 4096
#define MIN_MTU 68
#define NETNS_DIR "/run/netns"

struct options {
    struct host_station_config config;
    struct svec ips;            /* As given. */
    unsigned int n_stations;
    char *device;
    char *guid;                 /* --guid, or NULL. */
    char *unixctl_path;
};

static void parse_options(int argc, char *argv[], struct options *);
OVS_NO_RETURN static void usage(void);

static void
host_exit(struct unixctl_conn *conn, int argc OVS_UNUSED,
          const char *argv[] OVS_UNUSED, void *exiting_)
{
    bool *exiting = exiting_;

    *exiting = true;
    unixctl_command_reply(conn, NULL);
}

/* SIGTERM, SIGINT and SIGHUP ask for an end in good order, like "exit"; a
 * second one ends the process at once.  (This cannot be a hook of OVS's fatal
 * signals, under whose lock the device's thread would not end.) */
static struct latch exit_latch;

static void
handle_signal(int sig_nr OVS_UNUSED)
{
    int save_errno = errno;

    latch_set(&exit_latch);     /* Only writes to a pipe. */
    errno = save_errno;
}

static void
init_signals(void)
{
    static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
    struct sigaction sa;

    latch_init(&exit_latch);
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = handle_signal;
    sa.sa_flags = SA_RESTART | SA_RESETHAND;
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        sigaction(signals[i], &sa, NULL);
    }
}

/* A software HCA gets its port GUID from what makes this station different
 * from others: the host's name, and the station's device and addresses.  So
 * it is the same after a restart, without anything that is kept on disk. */
static void
set_soft_guid(struct options *o)
{
    const char *device = o->config.hca.device;
    char host_name[256] = "";
    uint32_t hash[2];

    if (strncmp(device, "soft:", 5) || strstr(device, "?guid=")) {
        return;
    }
    if (!o->guid) {
        if (getenv("OVS_IPOIB_SOFT_GUID")) {
            return;
        }
        gethostname(host_name, sizeof host_name - 1);
        for (int i = 0; i < 2; i++) {
            hash[i] = hash_string(host_name, i);
            hash[i] = hash_string(o->config.tun, hash[i]);
            for (size_t j = 0; j < o->ips.n; j++) {
                hash[i] = hash_string(o->ips.names[j], hash[i]);
            }
        }
        /* Locally administered, as an EUI-64. */
        o->guid = xasprintf("0x02%06x%08x", hash[0] & 0xffffff, hash[1]);
    }
    o->device = xasprintf("%s?guid=%s", device, o->guid);
    o->config.hca.device = o->device;
}

/* The name of the network namespace that this process is in, or NULL if it has
 * none.  For the caller to free. */
static char *
netns_name(void)
{
    char *name = NULL;
    struct dirent *de;
    struct stat own;
    DIR *dir;

    dir = stat("/proc/self/ns/net", &own) ? NULL : opendir(NETNS_DIR);
    while (dir && !name && (de = readdir(dir))) {
        char *path = xasprintf(NETNS_DIR"/%s", de->d_name);
        struct stat st;

        if (!stat(path, &st) && st.st_dev == own.st_dev
            && st.st_ino == own.st_ino) {
            name = xstrdup(de->d_name);
        }
        free(path);
    }
    if (dir) {
        closedir(dir);
    }
    return name;
}

/* The node description names the namespace and the device, so that stations of
 * one machine can be told from each other on the fabric. */
static void
set_description(const char *device)
{
    char *netns = netns_name();
    char *s = netns ? xasprintf("%s/%s", netns, device) : xstrdup(device);

    ipoib_soft_set_description(s);
    free(s);
    free(netns);
}

int
main(int argc, char *argv[])
{
    struct unixctl_server *unixctl;
    struct host_station *station;
    bool exiting = false;
    struct options o;
    char *error = NULL;

    set_program_name(argv[0]);
    ovsthread_id_init();
    ovs_cmdl_proctitle_init(argc, argv);
    service_start(&argc, &argv);
    parse_options(argc, argv, &o);
    set_description(o.config.tun);
    fatal_ignore_sigpipe();

    IPOIB_DAEMONIZE_START();
    if (host_station_create(&o.config, &station, &error)) {
        ovs_fatal(0, "%s", error);
    }
    if (unixctl_server_create(o.unixctl_path, &unixctl)) {
        exit(EXIT_FAILURE);
    }
    unixctl_command_register("exit", "", 0, 0, host_exit, &exiting);
    host_show_init(station);
    host_station_run(station);
    daemonize_complete();
    init_signals();

    while (!exiting) {
        host_station_run(station);
        unixctl_server_run(unixctl);

        host_station_wait(station);
        unixctl_server_wait(unixctl);
        if (exiting) {
            poll_immediate_wake();
        }
        latch_wait(&exit_latch);
        poll_block();
        if (latch_is_set(&exit_latch) || should_service_stop()) {
            exiting = true;
        }
    }

    host_station_destroy(station);
    unixctl_server_destroy(unixctl);
    free(o.config.ips);
    svec_destroy(&o.ips);
    free(o.device);
    free(o.guid);
    free(o.unixctl_path);
    service_stop();
    ovsrcu_exit();
    return 0;
}

/* Adds 'n' to the last 32 bits of 'ip'. */
static void
increment_ip(struct in6_addr *ip, uint32_t n)
{
    ovs_be32 x;

    memcpy(&x, &ip->s6_addr[12], sizeof x);
    x = htonl(ntohl(x) + n);
    memcpy(&ip->s6_addr[12], &x, sizeof x);
}

/* Parses 's', an address without prefix length, into '*ip'.  Returns the
 * length of its prefix at most, 0 if it is no address that one station can
 * have. */
static int
parse_unicast(const char *s, struct in6_addr *ip)
{
    ovs_be32 ipv4;

    /* (ip_parse() takes 10.0.0.300 for 10.0.0.44.) */
    if (inet_pton(AF_INET, s, &ipv4) == 1) {
        in6_addr_set_mapped_ipv4(ip, ipv4);
        return (ipv4 && ipv4 != OVS_BE32_MAX && !ip_is_multicast(ipv4)
                ? 32 : 0);
    }
    return (inet_pton(AF_INET6, s, ip) == 1 && ipv6_addr_is_set(ip)
            && !ipv6_addr_is_multicast(ip) && !IN6_IS_ADDR_V4MAPPED(ip)
            ? 128 : 0);
}

/* Parses 's', ADDR[/LEN], into '*ip'. */
static bool
parse_host_ip(const char *s, struct host_ip *ip)
{
    char *copy = xstrdup(s);
    char *slash = strchr(copy, '/');
    unsigned int plen;
    int max_plen;

    if (slash) {
        *slash++ = '\0';
    }
    max_plen = parse_unicast(copy, &ip->addr);
    plen = max_plen;
    if (slash && (!str_to_uint(slash, 10, &plen) || plen > max_plen)) {
        max_plen = 0;
    }
    ip->plen = plen;
    free(copy);
    return max_plen != 0;
}

/* Turns the addresses as given into those of the configuration. */
static void
parse_ips(struct options *o)
{
    struct host_station_config *c = &o->config;

    c->ips = xmalloc(MAX(o->ips.n * o->n_stations, 1) * sizeof *c->ips);
    for (size_t i = 0; i < o->ips.n; i++) {
        struct host_ip ip;

        if (!parse_host_ip(o->ips.names[i], &ip)) {
            ovs_fatal(0, "%s: not an IPv4 or IPv6 address with prefix length "
                      "(like 10.0.0.1/24) that a station can have",
                      o->ips.names[i]);
        }
        for (unsigned int j = 0; j < o->n_stations; j++) {
            c->ips[c->n_ips] = ip;
            increment_ip(&c->ips[c->n_ips++].addr, j);
        }
    }
}

/* Parses the number 's' of 'option', between 'min' and 'max'. */
static unsigned int
parse_number(const char *option, const char *s, unsigned int min,
             unsigned int max)
{
    unsigned int value;

    if (!str_to_uint(s, 0, &value) || value < min || value > max) {
        ovs_fatal(0, "--%s=%s: must be a number between %u and %u", option, s,
                  min, max);
    }
    return value;
}

/* Parses a P_Key. */
static uint16_t
parse_pkey(const char *option, const char *s)
{
    uint16_t pkey = parse_number(option, s, 1, 0xffff);

    if (!(pkey & IB_PKEY_MASK)) {
        ovs_fatal(0, "--%s=%s: 0 and 0x8000 are no partitions", option, s);
    }
    return pkey;
}

static void
parse_gateway(struct options *o, const char *s)
{
    struct in6_addr ip;
    int plen = parse_unicast(s, &ip);

    if (plen == 32) {
        o->config.gateway4 = ip;
    } else if (plen == 128) {
        o->config.gateway6 = ip;
    } else {
        ovs_fatal(0, "--gateway=%s: not an IPv4 or IPv6 address of a router",
                  s);
    }
}

static void
parse_guid(struct options *o, const char *s)
{
    const char *digits = !strncasecmp(s, "0x", 2) ? s + 2 : s;

    if (strlen(digits) != 16
        || strspn(digits, "0123456789abcdefABCDEF") != 16
        || strspn(digits, "0") == 16) {
        ovs_fatal(0, "--guid=%s: must be 16 hexadecimal digits, not all 0", s);
    }
    free(o->guid);
    o->guid = xasprintf("0x%s", digits);
}

/* Checks that what was given goes together. */
static void
check_options(struct options *o)
{
    struct host_station_config *c = &o->config;
    char *error = NULL;

    if (!c->hca.device) {
        ovs_fatal(0, "--device is missing; use --help for usage");
    }
    ipoib_soft_name_parse(c->hca.device, &error);
    if (error) {
        ovs_fatal(0, "--device: %s", error);
    }
    if (o->guid && strncmp(c->hca.device, "soft:", 5)) {
        ovs_fatal(0, "--guid=%s: only a software HCA takes a GUID, and "
                  "--device=%s is none", o->guid, c->hca.device);
    }
    if (o->n_stations > 1 && !o->ips.n) {
        ovs_fatal(0, "--stations=%u: needs an address to count from",
                  o->n_stations);
    }
    c->hca.n_ids = o->n_stations;
    parse_ips(o);
    set_soft_guid(o);
}

/* Numbers of long options. */
enum {
    OPT_DEVICE = UCHAR_MAX + 1,
    OPT_PORT,
    OPT_PKEY,
    OPT_TUN,
    OPT_ADDRESS,
    OPT_GATEWAY,
    OPT_MTU,
    OPT_GUID,
    OPT_STATIONS,
    OPT_LEARN,
    OPT_UNIXCTL,
    VLOG_OPTION_ENUMS,
    DAEMON_OPTION_ENUMS,
};

static const struct option long_options[] = {
    {"device", required_argument, NULL, OPT_DEVICE},
    {"port", required_argument, NULL, OPT_PORT},
    {"pkey", required_argument, NULL, OPT_PKEY},
    {"tun", required_argument, NULL, OPT_TUN},
    {"address", required_argument, NULL, OPT_ADDRESS},
    {"gateway", required_argument, NULL, OPT_GATEWAY},
    {"mtu", required_argument, NULL, OPT_MTU},
    {"guid", required_argument, NULL, OPT_GUID},
    {"stations", required_argument, NULL, OPT_STATIONS},
    {"learn", required_argument, NULL, OPT_LEARN},
    {"unixctl", required_argument, NULL, OPT_UNIXCTL},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    VLOG_LONG_OPTIONS,
    DAEMON_LONG_OPTIONS,
    {NULL, 0, NULL, 0},
};

/* True for "completion", false for "payload". */
static bool
parse_learn(const char *s)
{
    if (strcmp(s, "payload") && strcmp(s, "completion")) {
        ovs_fatal(0, "--learn=%s: must be payload or completion", s);
    }
    return !strcmp(s, "completion");
}

/* Does what 'option', with the value 's', asks for.  Returns false if it is
 * none of the station's own. */
static bool
apply_option(const struct option *option, char *s, struct options *o)
{
    struct host_station_config *c = &o->config;
    const char *name = option->name;

    switch (option->val) {
    case OPT_DEVICE:
        c->hca.device = s;
        return true;
    case OPT_PORT:
        c->hca.port = parse_number(name, s, 1, 255);
        return true;
    case OPT_PKEY:
        c->hca.pkey = parse_pkey(name, s);
        return true;
    case OPT_TUN:
        c->tun = s;
        return true;
    case OPT_ADDRESS:
        svec_add(&o->ips, s);
        return true;
    case OPT_GATEWAY:
        parse_gateway(o, s);
        return true;
    case OPT_MTU:
        c->mtu = parse_number(name, s, MIN_MTU, 4096 - IPOIB_HEADER_LEN);
        return true;
    case OPT_GUID:
        parse_guid(o, s);
        return true;
    case OPT_STATIONS:
        o->n_stations = parse_number(name, s, 1, MAX_STATIONS);
        return true;
    case OPT_LEARN:
        c->learn_completion = parse_learn(s);
        return true;
    case OPT_UNIXCTL:
        free(o->unixctl_path);
        o->unixctl_path = xstrdup(s);
        return true;
    default:
        return false;
    }
}

static void
init_options(struct options *o)
{
    memset(o, 0, sizeof *o);
    svec_init(&o->ips);
    o->n_stations = 1;
    o->config.hca.port = 1;
    o->config.hca.pkey = IB_PKEY_DEFAULT;
    o->config.tun = "ib0";
}

static void
parse_options(int argc, char *argv[], struct options *o)
{
    char *short_options = ovs_cmdl_long_options_to_short_options(long_options);

    init_options(o);
    for (;;) {
        int index = 0;
        int c = getopt_long(argc, argv, short_options, long_options, &index);

        if (c == -1) {
            break;
        }
        if (c == long_options[index].val
            && apply_option(&long_options[index], optarg, o)) {
            continue;
        }
        switch (c) {
        case 'h':
            usage();
        case 'V':
            ovs_print_version(0, 0);
            exit(EXIT_SUCCESS);
        VLOG_OPTION_HANDLERS
        DAEMON_OPTION_HANDLERS
        case '?':
            exit(EXIT_FAILURE);
        default:
            abort();
        }
    }
    free(short_options);
    for (int i = optind; i < argc; i++) {
        svec_add(&o->ips, argv[i]);
    }
    check_options(o);
}

static void
usage(void)
{
    printf("%s: software IPoIB station\n"
           "usage: %s --device=DEVICE [OPTIONS] [ADDRESS/LEN]...\n"
           "\nJoins an InfiniBand fabric and gives this network namespace a "
           "TUN device.\n"
           "\nStation options:\n"
           "  --device=DEVICE        soft:unix:PATH, soft:udp:ADDR:PORT, or a "
           "device of\n"
           "                         libibverbs\n"
           "  --port=NUMBER          port of the device (default: 1)\n"
           "  --pkey=P_KEY           partition (default: 0xffff)\n"
           "  --guid=GUID            port GUID of a software HCA\n"
           "  --tun=NAME             TUN device to make (default: ib0)\n"
           "  --address=ADDRESS/LEN  address of the TUN device, as are the "
           "arguments\n"
           "  --gateway=ADDRESS      next hop for what is on no subnet\n"
           "  --mtu=MTU              at most this (default: as the fabric "
           "allows)\n"
           "  --stations=N           plays N stations, with consecutive "
           "addresses\n"
           "  --learn=completion     know stations as iPXE does, by where "
           "their ARP\n"
           "                         comes from (default: payload)\n",
           program_name, program_name);
    daemon_usage();
    vlog_usage();
    printf("\nOther options:\n"
           "  --unixctl=SOCKET       override default control socket name\n"
           "  -h, --help             display this help message\n"
           "  -V, --version          display version information\n");
    exit(EXIT_SUCCESS);
}
