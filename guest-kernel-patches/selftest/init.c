// SPDX-License-Identifier: GPL-2.0
/*
 * The init of a guest that tries idle_spin: the knob, the counters against
 * independent sources, the tick, CPU hotplug and suspend-to-idle. Runs under
 * plain emulation too: nothing here depends on how fast the machine is.
 *
 * Prints one line per check, then "SELFTEST PASS" or "SELFTEST FAIL", and resets
 * the machine. Words on the kernel command line choose:
 *   selftest.spin=US	what the knob must read at the start
 *   selftest.rounds=N	length of the workloads and of the hotplug loop
 *   selftest.s2idle	suspend to idle (somebody must type into ttyS0)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define KNOB	"/sys/kernel/sched/idle_spin"
#define STATS	"/sys/kernel/debug/idle_spin/stats"
#define RECORD	"/sys/kernel/debug/idle_spin/record_gaps"
#define CPUS	2
#define BUCKETS	40

struct cpu_stats {
	uint64_t remote_hits, local_hits, misses, spin_ns, gaps[BUCKETS], gap_sum;
};

struct sample {
	struct cpu_stats cpu[CPUS];
	uint64_t ipi[CPUS];	/* RES + CAL of /proc/interrupts */
	uint64_t timer[CPUS];	/* LOC */
};

static int failures;

static void check(bool good, const char *format, ...)
{
	va_list args;

	printf("%s: ", good ? "ok" : "FAILED");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	failures += !good;
}

/*
 * By way of a reset, which QEMU takes for the end with -no-reboot, and which
 * works whatever became of ACPI.
 */
static void turn_off(void)
{
	fflush(stdout);
	tcdrain(1);
	for (;;) {
		reboot(RB_AUTOBOOT);
		sleep(1);
	}
}

static void fatal(const char *what)
{
	printf("FAILED: %s: %s\nSELFTEST FAIL\n", what, strerror(errno));
	turn_off();
}

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int error = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		error = errno;
	close(fd);
	return error;
}

static void put_number(const char *path, long number)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld\n", number);
	if (put(path, text))
		fatal(path);
}

static char *get(const char *path)
{
	static char text[1 << 16];
	int fd = open(path, O_RDONLY);
	size_t length = 0;
	ssize_t got;

	if (fd < 0)
		fatal(path);
	while ((got = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += got;
	close(fd);
	text[length] = 0;
	return text;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fatal("sched_setaffinity");
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void nap(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static struct sample take(void)
{
	struct sample s = { 0 };
	char *line, *rest;
	int cpu, i, n, lines = 0;

	for (line = strtok_r(get(STATS), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		struct cpu_stats c = { 0 };
		char *p;

		if (sscanf(line, "cpu %d remote_hits %lu local_hits %lu misses %lu spin_ns %lu gaps%n",
			   &cpu, &c.remote_hits, &c.local_hits, &c.misses, &c.spin_ns, &n) != 5)
			fatal("format of " STATS);
		p = line + n;
		for (i = 0; i < BUCKETS; i++) {
			c.gaps[i] = strtoull(p, &p, 10);
			c.gap_sum += c.gaps[i];
		}
		if (*p || cpu != lines)
			fatal("number of values in " STATS);
		if (cpu < CPUS)
			s.cpu[cpu] = c;
		lines++;
	}
	if (lines != CPUS)
		fatal("number of lines in " STATS);

	for (line = strtok_r(get("/proc/interrupts"), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		uint64_t a = 0, b = 0;
		char name[8];

		if (sscanf(line, " %7[A-Z]: %lu %lu", name, &a, &b) < 2)
			continue;
		if (!strcmp(name, "LOC")) {
			s.timer[0] = a;
			s.timer[1] = b;
		} else if (!strcmp(name, "RES") || !strcmp(name, "CAL")) {
			s.ipi[0] += a;
			s.ipi[1] += b;
		}
	}
	return s;
}

static struct sample minus(struct sample a, struct sample b)
{
	int cpu, i;

	for (cpu = 0; cpu < CPUS; cpu++) {
		struct cpu_stats *x = &a.cpu[cpu], *y = &b.cpu[cpu];

		x->remote_hits -= y->remote_hits;
		x->local_hits -= y->local_hits;
		x->misses -= y->misses;
		x->spin_ns -= y->spin_ns;
		x->gap_sum -= y->gap_sum;
		for (i = 0; i < BUCKETS; i++)
			x->gaps[i] -= y->gaps[i];
		a.ipi[cpu] -= b.ipi[cpu];
		a.timer[cpu] -= b.timer[cpu];
	}
	return a;
}

static void show(const char *name, struct sample d)
{
	int cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		printf("    %s cpu%d: remote %lu local %lu misses %lu spun %lu us, gaps %lu, IPIs %lu, timer %lu\n",
		       name, cpu, d.cpu[cpu].remote_hits, d.cpu[cpu].local_hits, d.cpu[cpu].misses,
		       d.cpu[cpu].spin_ns / 1000, d.cpu[cpu].gap_sum, d.ipi[cpu], d.timer[cpu]);
}

static uint64_t spins(struct sample d)
{
	uint64_t sum = 0;
	int cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		sum += d.cpu[cpu].remote_hits + d.cpu[cpu].local_hits + d.cpu[cpu].misses;
	return sum;
}

/* A byte to and fro between a task on CPU 0 and one on CPU 1. */
static struct sample ping_pong(long us, int rounds)
{
	struct sample before, after;
	int to[2], fro[2], i;
	char byte = 0;
	pid_t child;

	if (pipe(to) || pipe(fro))
		fatal("pipe");
	put_number(KNOB, us);
	child = fork();
	if (child < 0)
		fatal("fork");
	if (!child) {
		pin(1);
		for (i = 0; i < rounds + 100; i++)
			if (read(to[0], &byte, 1) != 1 || write(fro[1], &byte, 1) != 1)
				_exit(1);
		_exit(0);
	}
	pin(0);
	for (i = -100; i < rounds; i++) {
		if (i == 0)
			before = take();
		if (write(to[1], &byte, 1) != 1 || read(fro[0], &byte, 1) != 1)
			fatal("ping-pong");
	}
	after = take();
	waitpid(child, NULL, 0);
	close(to[0]);
	close(to[1]);
	close(fro[0]);
	close(fro[1]);
	put_number(KNOB, 0);
	return minus(after, before);
}

/* Sleeps on CPU 1 that only its own timer ends. CPU 0 waits. */
static struct sample sleeps(long us, long sleep_us, int count)
{
	struct sample before = take();
	pid_t child;
	int i;

	put_number(KNOB, us);
	child = fork();
	if (child < 0)
		fatal("fork");
	if (!child) {
		pin(1);
		for (i = 0; i < count; i++)
			nap(sleep_us);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	put_number(KNOB, 0);
	return minus(take(), before);
}

static void check_knob(void)
{
	static const char * const good[] = { "0", "1", "50\n", "220", "1000000\n" };
	static const char * const bad[] = { "1000001", "-1", "abc", "\n", "5x", "5 6", "0x10", "1.5",
					    "4294967296", "99999999999999999999" };
	unsigned int i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		int error = put(KNOB, good[i]);

		check(!error && atol(get(KNOB)) == atol(good[i]), "knob takes %ld", atol(good[i]));
	}
	put_number(KNOB, 77);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		int error = put(KNOB, bad[i]);

		check(error == EINVAL && !strcmp(get(KNOB), "77\n"), "knob refuses '%s': %s",
		      bad[i][0] == '\n' ? "\\n" : bad[i], strerror(error));
	}
	put_number(KNOB, 0);
	check(put(RECORD, "2") == EINVAL, "record_gaps refuses 2");
}

static void check_counters(int rounds)
{
	struct sample off, gaps, on, timer, miss;
	uint64_t ipis_off, ipis_on;

	put_number(RECORD, 0);
	off = ping_pong(0, rounds);
	show("off", off);
	check(spins(off) == 0 && off.cpu[0].gap_sum + off.cpu[1].gap_sum == 0, "off: nothing is counted");

	put_number(RECORD, 1);
	gaps = ping_pong(0, rounds);
	show("gaps", gaps);
	check(spins(gaps) == 0, "record_gaps alone: no spin");
	check(gaps.cpu[0].gap_sum + gaps.cpu[1].gap_sum > (uint64_t)rounds,
	      "record_gaps: idle periods are recorded");
	put_number(RECORD, 0);

	on = ping_pong(1000000, rounds);
	show("on", on);
	ipis_off = off.ipi[0] + off.ipi[1];
	ipis_on = on.ipi[0] + on.ipi[1];
	check(on.cpu[0].remote_hits + on.cpu[1].remote_hits >= (uint64_t)rounds,
	      "on: remote hits (%lu) at least rounds (%d)", on.cpu[0].remote_hits + on.cpu[1].remote_hits, rounds);
	check(on.cpu[0].misses + on.cpu[1].misses == 0, "on: a second's spin does not miss");
	check(ipis_on * 5 < ipis_off, "on: wake-up IPIs fall by more than 80 %% (%lu to %lu)", ipis_off, ipis_on);
	/*
	 * An idle period that was to end before its spin could begin is a gap without
	 * a spin: few, but how few depends on how the two CPUs happen to run.
	 */
	check(on.cpu[1].gap_sum + 2 >= on.cpu[1].remote_hits + on.cpu[1].local_hits &&
	      on.cpu[1].gap_sum <= on.cpu[1].remote_hits + on.cpu[1].local_hits + 2 + rounds / 10,
	      "on: about as many idle periods (%lu) as spins (%lu) on CPU 1", on.cpu[1].gap_sum,
	      on.cpu[1].remote_hits + on.cpu[1].local_hits);

	timer = sleeps(1000000, 3000, 200);
	show("timer", timer);
	check(timer.cpu[1].local_hits >= 195, "timer sleeps: local hits (%lu) of 200", timer.cpu[1].local_hits);
	check(timer.cpu[1].remote_hits <= 20, "timer sleeps: hardly a remote hit (%lu)", timer.cpu[1].remote_hits);
	check(timer.cpu[1].spin_ns >= 195 * 3000000ull, "timer sleeps: %lu ms spun of 600",
	      timer.cpu[1].spin_ns / 1000000);

	miss = sleeps(50, 20000, 50);
	show("miss", miss);
	check(miss.cpu[1].misses >= 45, "long sleeps: misses (%lu) of 50", miss.cpu[1].misses);
	check(miss.cpu[1].spin_ns >= miss.cpu[1].misses * 50000, "long sleeps: each spin lasted at least 50 us");
}

/* A spin that misses must not keep the tick alive, nor a hit stop it. */
static void check_tick(void)
{
	struct sample halt = sleeps(0, 500000, 4), spin = sleeps(1000, 500000, 4), burn = sleeps(1000000, 500000, 4);

	show("halt", halt);
	show("spin", spin);
	show("burn", burn);
	check(spin.timer[1] <= halt.timer[1] + 60, "tick: stopped after a miss (%lu timer interrupts in 2 s; %lu without)",
	      spin.timer[1], halt.timer[1]);
	check(burn.timer[1] >= 100 && burn.timer[1] >= 4 * halt.timer[1],
	      "tick: goes on while spinning (%lu timer interrupts in 2 s)", burn.timer[1]);
}

static void check_hotplug(int rounds)
{
	struct sample before, d;
	int i, bad = 0;
	pid_t child;

	put_number(KNOB, 5000);
	child = fork();
	if (!child) {
		for (;;)
			nap(700);
	}
	for (i = 0; i < rounds; i++) {
		bad += put("/sys/devices/system/cpu/cpu1/online", "0") != 0;
		nap(3000);
		bad += put("/sys/devices/system/cpu/cpu1/online", "1") != 0;
		nap(7000);
	}
	check(!bad, "hotplug: %d times off and on", rounds);

	/* An offline CPU does not spin. */
	put("/sys/devices/system/cpu/cpu1/online", "0");
	before = take();
	nap(200000);
	d = minus(take(), before);
	check(d.cpu[1].remote_hits + d.cpu[1].local_hits + d.cpu[1].misses + d.cpu[1].spin_ns == 0,
	      "hotplug: an offline CPU does not spin");
	put("/sys/devices/system/cpu/cpu1/online", "1");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);

	/* Comes and goes while the other CPU is woken all the time. */
	d = ping_pong(100000, 500);
	check(d.cpu[0].remote_hits + d.cpu[1].remote_hits > 0, "hotplug: the CPU spins again when back");
	put_number(KNOB, 0);
}

/* A lower limit holds for a spin that is going on. */
static void check_limit(void)
{
	struct sample before, d;
	uint64_t start;
	int tries;

	pin(0);
	for (tries = 0; tries < 10; tries++) {
		put_number(KNOB, 1000000);
		nap(5000);
		before = take();
		start = now_ns();
		nap(100000);
		put_number(KNOB, 1);
		nap(100000);
		d = minus(take(), before);
		/* If that took a second, the spin may have ended by itself. */
		if (now_ns() - start < 800000000ull)
			break;
	}
	show("limit", d);
	check(tries < 10 && d.cpu[1].misses >= 1 && d.cpu[1].spin_ns >= 50000000,
	      "limit: lowered while a CPU spins, it ends the spin (%lu ms spun)", d.cpu[1].spin_ns / 1000000);
	put_number(KNOB, 0);
}

/* The static keys are switched while CPUs are on their way in and out of idle. */
static void check_toggle(int rounds)
{
	pid_t child;
	int i;

	child = fork();
	if (!child) {
		pin(1);
		for (;;)
			nap(300);
	}
	for (i = 0; i < rounds; i++) {
		put_number(RECORD, i % 2);
		put_number(KNOB, 1000000);
		nap(500);
		put_number(KNOB, 0);
	}
	check(true, "toggling: %d times", rounds);
	put_number(RECORD, 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static int count_lines(const char *path, const char *word)
{
	FILE *file = fopen(path, "r");
	char line[512];
	int count = 0;

	if (!file)
		fatal(path);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, word) != NULL;
	fclose(file);
	return count;
}

/*
 * Where the kernel has tracing: the scheduler's own event for a wakeup without
 * an IPI against our remote hits, and the latency tracers on top, which have
 * their own rules for the idle loop.
 */
static void check_tracing(int rounds)
{
	static const char instance[] = "/sys/kernel/tracing/instances/selftest";
	struct sample d;
	char path[128];
	int cpu;

	if (mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL) || mkdir(instance, 0755)) {
		printf("    no tracing in this kernel\n");
		return;
	}
	put("/sys/kernel/tracing/current_tracer", "preemptirqsoff");
	snprintf(path, sizeof(path), "%s/events/power/cpu_idle/enable", instance);
	check(!put(path, "1"), "tracing: event cpu_idle");
	snprintf(path, sizeof(path), "%s/events/sched/sched_wake_idle_without_ipi/enable", instance);
	check(!put(path, "1"), "tracing: event sched_wake_idle_without_ipi");

	d = ping_pong(1000000, rounds);
	snprintf(path, sizeof(path), "%s/tracing_on", instance);
	put(path, "0");
	show("trace", d);
	snprintf(path, sizeof(path), "%s/trace", instance);
	for (cpu = 0; cpu < CPUS; cpu++) {
		char word[64];
		int events;

		snprintf(word, sizeof(word), "sched_wake_idle_without_ipi: cpu=%d", cpu);
		events = count_lines(path, word);
		/* The trace has the 100 rounds before the first sample, too. */
		check(d.cpu[cpu].remote_hits >= (uint64_t)rounds * 9 / 10 &&
		      d.cpu[cpu].remote_hits <= (uint64_t)events &&
		      (uint64_t)events <= d.cpu[cpu].remote_hits + 100 + rounds / 10,
		      "tracing: CPU %d: %lu remote hits, %d wakeups without IPI by the scheduler's event, 100 of warm-up among them",
		      cpu, d.cpu[cpu].remote_hits, events);
	}
	put("/sys/kernel/tracing/current_tracer", "nop");
	rmdir(instance);
}

static void check_s2idle(void)
{
	struct sample before, d;
	uint64_t start;
	int i, error;

	put_number(KNOB, 20000);
	put("/sys/class/tty/ttyS0/power/wakeup", "enabled");
	for (i = 0; i < 3; i++) {
		before = take();
		start = now_ns();
		printf("SELFTEST suspending\n");
		fflush(stdout);
		error = put("/sys/power/state", "freeze");
		d = minus(take(), before);
		show("s2idle", d);
		check(!error, "s2idle: slept and woke, %lu ms in all", (now_ns() - start) / 1000000);
		check(d.cpu[0].spin_ns < 1000000000 && d.cpu[1].spin_ns < 1000000000,
		      "s2idle: a sleeping system does not spin");
	}
	put_number(KNOB, 0);
}

static long option(const char *name, long otherwise)
{
	char *p = strstr(get("/proc/cmdline"), name);

	return p && p[strlen(name)] == '=' ? atol(p + strlen(name) + 1) : otherwise;
}

int main(void)
{
	long rounds;
	int fd;

	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	if (mount("proc", "/proc", "proc", 0, NULL) || mount("sysfs", "/sys", "sysfs", 0, NULL) ||
	    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL))
		fatal("mount");
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	fd = open("/dev/ttyS0", O_RDWR);
	if (fd >= 0) {
		dup2(fd, 0);
		dup2(fd, 1);
		dup2(fd, 2);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);

	rounds = option("selftest.rounds", 1000);
	check(atol(get(KNOB)) == option("selftest.spin", 0), "knob reads %ld at the start", atol(get(KNOB)));
	check_knob();
	check_counters(rounds);
	check_tick();
	check_limit();
	check_toggle(rounds / 10);
	check_tracing(rounds / 2);
	check_hotplug(rounds / 20);
	if (strstr(get("/proc/cmdline"), "selftest.s2idle"))
		check_s2idle();

	printf("%s\n", get(STATS));
	printf("SELFTEST %s\n", failures ? "FAIL" : "PASS");
	turn_off();
}
