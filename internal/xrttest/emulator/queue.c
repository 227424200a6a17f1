// Submission: one thread emulates the device and executes commands in order.
#include "emu.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
	submission s;
	struct job *next;
} job;

static job *first, **last = &first;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static bool started;

static void *device_thread(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&emu_lock);
	for (;;) {
		while (!first)
			pthread_cond_wait(&arrived, &emu_lock);
		job *j = first;
		first = j->next;
		if (!first)
			last = &first;
		execute(&j->s);
		contexts[j->s.ctx].completed = j->s.seq + 1;
		for (uint32_t i = 0; i < j->s.nargs; i++)
			buffer_unpin(j->s.args[i]);
		buffer_unpin(j->s.command);
		pthread_cond_broadcast(&emu_changed);
		free(j->s.args);
		free(j);
	}
	return NULL;
}

int queue_submit(struct amdxdna_drm_exec_cmd *a)
{
	int err = script_errno(ON_SUBMIT);
	context *c = context_get(a->hwctx);
	uint32_t command = (uint32_t)a->cmd_handles; // a single handle is stored in the field itself
	buffer *b = buffer_get(command);
	if (err)
		return err;
	if (!c || a->type != AMDXDNA_CMD_SUBMIT_EXEC_BUF || a->cmd_count != 1 || !b || b->type != AMDXDNA_BO_CMD)
		return -EINVAL;
	if (a->arg_count > MAX_BUFFERS)
		return -EINVAL;
	const uint32_t *args = (const uint32_t *)(uintptr_t)a->args;
	for (uint32_t i = 0; i < a->arg_count; i++)
		if (!buffer_get(args[i]))
			return -ENOENT;
	while (c->used && c->submitted - c->completed >= MAX_PENDING)
		pthread_cond_wait(&emu_changed, &emu_lock);
	if (!c->used)
		return -ENOENT;
	pthread_t thread;
	if (!started && pthread_create(&thread, NULL, device_thread, NULL))
		return -ENOMEM;
	if (!started)
		pthread_detach(thread);
	started = true;
	job *j = calloc(1, sizeof *j);
	uint32_t *copy = malloc(a->arg_count * sizeof *copy + 1);
	if (!j || !copy) {
		free(j);
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, args, a->arg_count * sizeof *copy);
	for (uint32_t i = 0; i < a->arg_count; i++)
		buffer_pin(copy[i]);
	buffer_pin(command);
	a->seq = c->submitted++;
	j->s = (submission){.ctx = a->hwctx, .command = command, .nargs = a->arg_count, .args = copy,
		.seq = a->seq, .epoch = c->epoch};
	*last = j;
	last = &j->next;
	pthread_cond_signal(&arrived);
	TRACE("submit command %u to context %u: %llu", command, a->hwctx, (unsigned long long)a->seq);
	return 0;
}
