// Scripted faults. A script has lines, or parts separated by semicolons:
//
//	EVENT N ACTION [VALUE]     the Nth event from now on, counted from 1; * is every one
//	limit NAME VALUE           contexts, memlock (bytes) or heap (bytes)
//
// The events open, mmap (of locked memory), create_bo, create_hwctx and submit have the name of an
// errno as action. The event run is one command on the device, in a chain or alone; its actions are
// timeout, error, abort, delay MS, remove (the device is gone from then on) and async CODE (the run
// fails, and CODE is the last asynchronous error). Text from # to the end of the line is a comment.
#include "emu.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

uint64_t limit_contexts = MAX_CONTEXTS, limit_memlock = ~0ull, limit_heap = HEAP_MAX;
uint64_t async_code, async_time_us;

typedef struct {
	enum script_event event;
	uint64_t when; // 0: every time
	script_step step;
} rule;

static const char *const event_names[EVENTS] = {"open", "mmap", "create_bo", "create_hwctx", "submit", "run"};
static const struct { const char *name; int value; } errnos[] = {
	{"EPERM", EPERM}, {"ENOENT", ENOENT}, {"EIO", EIO}, {"EAGAIN", EAGAIN},
	{"ENOMEM", ENOMEM}, {"EACCES", EACCES}, {"EBUSY", EBUSY}, {"ENODEV", ENODEV},
	{"EINVAL", EINVAL}, {"ENOSPC", ENOSPC}, {"EOPNOTSUPP", EOPNOTSUPP},
};
static const struct {
	const char *name;
	enum script_action action;
	uint64_t value;
	bool has_value;
} run_actions[] = {
	{"timeout", DO_STATE, NPUEMU_TIMEOUT, false}, {"error", DO_STATE, NPUEMU_ERROR, false},
	{"abort", DO_STATE, NPUEMU_ABORT, false},
	{"delay", DO_DELAY, 0, true}, {"remove", DO_REMOVE, 0, false}, {"async", DO_ASYNC, 0, true},
};

enum { MAX_RULES = 256 };
static rule rules[MAX_RULES];
static uint32_t nrules;
static uint64_t counts[EVENTS];

script_step script_next(enum script_event e)
{
	uint64_t n = ++counts[e];
	for (uint32_t i = 0; i < nrules; i++)
		if (rules[i].event == e && (rules[i].when == 0 || rules[i].when == n))
			return rules[i].step;
	return (script_step){DO_NOTHING, 0};
}

int script_errno(enum script_event e)
{
	script_step s = script_next(e);
	return s.action == DO_ERRNO ? -(int)s.value : 0;
}

static bool number(const char *s, uint64_t *v)
{
	char *end;
	if (!s || !isdigit((unsigned char)*s))
		return false;
	*v = strtoull(s, &end, 0);
	return *end == 0;
}

static const char *parse_limit(const char *name, const char *value)
{
	uint64_t v;
	if (!name || !number(value, &v))
		return "a limit is: limit contexts|memlock|heap NUMBER";
	if (!strcmp(name, "contexts"))
		limit_contexts = v;
	else if (!strcmp(name, "memlock"))
		limit_memlock = v;
	else if (!strcmp(name, "heap"))
		limit_heap = v;
	else
		return "a limit is: limit contexts|memlock|heap NUMBER";
	return NULL;
}

static const char *parse_rule(rule *r, const char *event, const char *when, const char *action,
	const char *value)
{
	int e = 0;
	while (e < EVENTS && strcmp(event, event_names[e]))
		e++;
	if (e == EVENTS)
		return "an event is open, mmap, create_bo, create_hwctx, submit or run";
	r->event = (enum script_event)e;
	r->when = 0;
	if (!when || (strcmp(when, "*") && (!number(when, &r->when) || r->when == 0)))
		return "an event is followed by its number, from 1, or by *";
	if (!action)
		return "an action is missing";
	if (e != ON_RUN) {
		for (uint32_t i = 0; i < sizeof errnos / sizeof *errnos; i++)
			if (!strcmp(action, errnos[i].name)) {
				r->step = (script_step){DO_ERRNO, (uint64_t)errnos[i].value};
				return value ? "there is something after the errno" : NULL;
			}
		return "the action of this event is the name of an errno, as ENOMEM";
	}
	for (uint32_t i = 0; i < sizeof run_actions / sizeof *run_actions; i++)
		if (!strcmp(action, run_actions[i].name)) {
			r->step = (script_step){run_actions[i].action, run_actions[i].value};
			if (run_actions[i].has_value)
				return number(value, &r->step.value) ? NULL : "this action is followed by a number";
			return value ? "there is something after the action" : NULL;
		}
	return "the action of run is timeout, error, abort, delay MS, remove or async CODE";
}

const char *npuemu_script(const char *text)
{
	char *copy = strdup(text ? text : ""), *line_end, *word_end;
	const char *wrong = copy ? NULL : "out of memory";
	pthread_mutex_lock(&emu_lock);
	memset(counts, 0, sizeof counts);
	nrules = 0;
	limit_contexts = MAX_CONTEXTS;
	limit_memlock = ~0ull;
	limit_heap = HEAP_MAX;
	async_code = 0;
	bool comment = false;
	for (char *p = copy; p && *p; p++) {
		comment = *p != '\n' && (comment || *p == '#');
		if (comment)
			*p = ' ';
	}
	for (char *line = copy ? strtok_r(copy, "\n;", &line_end) : NULL; line && !wrong;
	     line = strtok_r(NULL, "\n;", &line_end)) {
		char *words[5] = {0};
		int n = 0;
		for (char *w = strtok_r(line, " \t", &word_end); w && n < 5; w = strtok_r(NULL, " \t", &word_end))
			words[n++] = w;
		if (n == 0)
			continue;
		if (n == 5 || (n == 4 && !strcmp(words[0], "limit")))
			wrong = "too many words";
		else if (!strcmp(words[0], "limit"))
			wrong = parse_limit(words[1], words[2]);
		else if (nrules == MAX_RULES)
			wrong = "too many rules";
		else
			wrong = parse_rule(&rules[nrules++], words[0], words[1], words[2], words[3]);
	}
	if (wrong)
		nrules = 0;
	pthread_mutex_unlock(&emu_lock);
	free(copy);
	return wrong;
}
