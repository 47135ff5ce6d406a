// Holds every packet of netfilter queue 0 for a constant time, then lets it go on: latency where the kernel has no netem.
//
//   packet_delay MICROSECONDS       ends on SIGTERM
//
// Only a packet's number comes to this program, never its bytes, and packets stay whole (GSO), so that 10 Gbit/s cost
// little. The time is the same for all, so packets leave in the order in which they came: a ring holds them.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <libnetfilter_queue/libnetfilter_queue.h>
#include <linux/netfilter.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { RING = 1 << 17, RECEIVE_BUFFER = 64 << 20 };

static struct { uint64_t due_ns; uint32_t packet; } ring[RING];
static unsigned oldest, newest; // positions in the ring; equal: nothing is held
static uint64_t delay_ns;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what) {
  fprintf(stderr, "packet_delay: %s: ", what);
  perror(NULL);
  exit(1);
}

static int hold(struct nfq_q_handle *queue, struct nfgenmsg *message, struct nfq_data *data, void *unused) {
  (void)queue, (void)message, (void)unused;
  ring[newest % RING].due_ns = now_ns() + delay_ns;
  ring[newest % RING].packet = ntohl(nfq_get_msg_packet_hdr(data)->packet_id);
  newest++;
  return 0;
}

// Accepts all packets that are due; nanoseconds until the next one is, or -1 where none is held.
static int64_t release(struct nfq_q_handle *queue) {
  uint64_t now = now_ns();
  unsigned first = oldest;
  while (oldest != newest && ring[oldest % RING].due_ns <= now) oldest++;
  // One verdict stands for the numbered packet and all before it.
  if (oldest != first) nfq_set_verdict_batch(queue, ring[(oldest - 1) % RING].packet, NF_ACCEPT);
  return oldest == newest ? -1 : (int64_t)(ring[oldest % RING].due_ns - now);
}

int main(int count, char **arguments) {
  double delay_us = count == 2 ? atof(arguments[1]) : 0;
  if (delay_us <= 0) {
    fprintf(stderr, "usage: packet_delay MICROSECONDS\n");
    return 2;
  }
  delay_ns = (uint64_t)(delay_us * 1000);
  // Wake up on time on a busy machine. Both are refused without harm where they are not allowed.
  prctl(PR_SET_TIMERSLACK, 1UL);
  sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10});

  struct nfq_handle *handle = nfq_open();
  if (!handle) fail("cannot open netfilter's queues");
  struct nfq_q_handle *queue = nfq_create_queue(handle, 0, hold, NULL);
  if (!queue) fail("cannot take netfilter queue 0");
  if (nfq_set_mode(queue, NFQNL_COPY_META, 0) < 0 || nfq_set_queue_maxlen(queue, RING / 2) < 0 ||
      nfq_set_queue_flags(queue, NFQA_CFG_F_GSO, NFQA_CFG_F_GSO) < 0)
    fail("cannot set up netfilter queue 0");
  nfnl_rcvbufsiz(nfq_nfnlh(handle), RECEIVE_BUFFER);
  printf("ready\n");
  fflush(stdout);

  static char buffer[1 << 16] __attribute__((aligned(8)));
  struct pollfd arrival = {nfq_fd(handle), POLLIN, 0};
  for (;;) {
    int64_t wait_ns = release(queue);
    struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    if (ppoll(&arrival, 1, wait_ns < 0 ? NULL : &wait, NULL) <= 0) continue;
    ssize_t bytes = recv(arrival.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes > 0)
      nfq_handle_packet(handle, buffer, (int)bytes);
    else if (bytes < 0 && errno != EAGAIN && errno != ENOBUFS)
      fail("cannot receive");
  }
}
