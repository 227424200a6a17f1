//go:build xrt && linux && cgo

#include "shim.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>
#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_error.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/experimental/xrt_kernel.h>
#include <xrt/experimental/xrt_module.h>
#include <xrt/experimental/xrt_system.h>
#include <xrt/experimental/xrt_version.h>
#include <xrt/experimental/xrt_xclbin.h>

// A run and its buffer arguments. XRT stores the addresses of buffers but does not keep them alive.
struct bound_run {
  xrt::run run;
  std::map<int, xrt::bo> buffers;
};

struct nx_device { xrt::device device; };
struct nx_xclbin { xrt::xclbin xclbin; };
struct nx_elf { xrt::elf elf; };
struct nx_context { xrt::hw_context context; };

// A buffer and the whole that it is part of. XRT loses the offset if a sub-buffer is created from a
// sub-buffer.
struct nx_buffer {
  xrt::bo bo, whole;
  size_t offset;
};
struct nx_kernel { xrt::kernel kernel; };
struct nx_run { std::shared_ptr<bound_run> bound; };
// One submission of a list. XRT splits a list after every 24 runs even if their commands do not fit
// into the driver's buffer, so the caller decides where to split, and each chain is an XRT list.
// The runlist is done when all chains are: a chain may fail while later ones are still running.
struct chain {
  xrt::runlist list;
  std::vector<std::shared_ptr<bound_run>> runs; // keeps buffers alive after the runs' handles are freed
  bool done;
};
struct nx_runlist {
  xrt::hw_context context;
  std::vector<chain> chains;
  nx_error *failure; // first error of the last execution, until nx_runlist_result
};

namespace {

// Returned by make_error if the error cannot be allocated; not freed by nx_error_free.
nx_error out_of_memory = {ENOMEM, 0, -1, nullptr};

nx_error *make_error(const char *text, int code = 0, int state = 0, int run = -1)
{
  auto e = static_cast<nx_error *>(std::malloc(sizeof(nx_error)));
  char *copy = strdup(text);
  if (!e || !copy) {
    std::free(e);
    std::free(copy);
    return &out_of_memory;
  }
  *e = {code, state, run, copy};
  return e;
}

int place(const chain *p, const xrt::run &run)
{
  for (size_t i = 0; p && i < p->runs.size(); i++)
    if (p->runs[i]->run.get_handle() == run.get_handle())
      return static_cast<int>(i);
  return -1;
}

// Calls body and converts exceptions to errors.
template <class F> nx_error *guard(F body, const chain *p = nullptr)
{
  try {
    body();
    return nullptr;
  } catch (const xrt::runlist::command_error &e) {
    return make_error(e.what(), 0, e.get_command_state(), place(p, e.get_run()));
  } catch (const xrt::run::command_error &e) {
    return make_error(e.what(), 0, e.get_command_state());
  } catch (const std::bad_alloc &) {
    return make_error("out of memory", ENOMEM);
  } catch (const std::system_error &e) {
    return make_error(e.what(), e.code().value());
  } catch (const std::exception &e) {
    return make_error(e.what());
  } catch (...) {
    return make_error("an exception of unknown type");
  }
}

char *copy_text(const std::string &s)
{
  char *p = strdup(s.c_str());
  if (!p)
    throw std::bad_alloc();
  return p;
}

nx_buffer *whole(const xrt::bo &bo) { return new nx_buffer{bo, bo, 0}; }

// Replaces control characters in a name, for a line of tab-separated fields.
std::string field(std::string s)
{
  for (char &c : s)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
      c = '?';
  return s;
}

std::map<std::string, uint32_t> quality(const char **names, const uint32_t *values, size_t n)
{
  std::map<std::string, uint32_t> q;
  for (size_t i = 0; i < n; i++)
    q[names[i]] = values[i];
  return q;
}

std::string device_text(const xrt::device &d, int what)
{
  using info = xrt::info::device;
  switch (static_cast<info>(what)) {
  case info::bdf: return d.get_info<info::bdf>();
  case info::name: return d.get_info<info::name>();
  case info::electrical: return d.get_info<info::electrical>();
  case info::thermal: return d.get_info<info::thermal>();
  case info::platform: return d.get_info<info::platform>();
  case info::pcie_info: return d.get_info<info::pcie_info>();
  case info::host: return d.get_info<info::host>();
  case info::aie: return d.get_info<info::aie>();
  case info::aie_shim: return d.get_info<info::aie_shim>();
  case info::aie_mem: return d.get_info<info::aie_mem>();
  case info::memory: return d.get_info<info::memory>();
  default: throw std::runtime_error("no such device information");
  }
}

} // namespace

void nx_error_free(nx_error *e)
{
  if (e == &out_of_memory || !e)
    return;
  std::free(e->text);
  std::free(e);
}

nx_error *nx_version(unsigned v[4])
{
  return guard([&] {
    v[0] = xrt::version::major();
    v[1] = xrt::version::minor();
    v[2] = xrt::version::patch();
    v[3] = xrt::version::build();
  });
}

nx_error *nx_device_count(unsigned *n)
{
  return guard([&] { *n = xrt::system::enumerate_devices(); });
}

nx_error *nx_device_open(unsigned index, nx_device **out)
{
  return guard([&] { *out = new nx_device{xrt::device(index)}; });
}

nx_error *nx_device_open_bdf(const char *bdf, nx_device **out)
{
  return guard([&] { *out = new nx_device{xrt::device(std::string(bdf))}; });
}

nx_error *nx_device_text(nx_device *d, int what, char **out)
{
  return guard([&] { *out = copy_text(device_text(d->device, what)); });
}

nx_error *nx_device_last_error(nx_device *d, int error_class, uint64_t *code, uint64_t *time_us, char **out)
{
  return guard([&] {
    xrt::error e(d->device, static_cast<xrtErrorClass>(error_class));
    *code = e.get_error_code();
    *time_us = e.get_timestamp();
    *out = copy_text(e.to_string());
  });
}

void nx_device_free(nx_device *d) { delete d; }

nx_error *nx_xclbin_parse(const void *data, size_t n, nx_xclbin **out)
{
  return guard([&] {
    std::string_view text(static_cast<const char *>(data), n);
    *out = new nx_xclbin{xrt::xclbin(text)};
  });
}

nx_error *nx_xclbin_describe(nx_xclbin *x, char **out)
{
  return guard([&] {
    std::ostringstream s;
    for (const auto &k : x->xclbin.get_kernels()) {
      s << "kernel\t" << field(k.get_name()) << '\t' << k.get_num_args() << '\n';
      for (const auto &a : k.get_args())
        s << "arg\t" << a.get_index() << '\t' << field(a.get_name()) << '\t' << field(a.get_host_type()) << '\t'
          << a.get_offset() << '\t' << a.get_size() << '\n';
    }
    *out = copy_text(s.str());
  });
}

void nx_xclbin_free(nx_xclbin *x) { delete x; }

nx_error *nx_elf_parse(const void *data, size_t n, nx_elf **out)
{
  return guard([&] { *out = new nx_elf{xrt::elf(data, n)}; });
}

nx_error *nx_elf_describe(nx_elf *e, char **out)
{
  return guard([&] {
    std::ostringstream s;
    bool full = e->elf.is_full_elf();
    s << "elf\t" << full << '\n';
    if (full) {
      for (const auto &k : e->elf.get_kernels()) {
        s << "kernel\t" << field(k.get_name()) << '\t' << k.get_num_args() << '\n';
        for (const auto &i : k.get_instances())
          s << "instance\t" << field(i.get_name()) << '\n';
      }
    }
    *out = copy_text(s.str());
  });
}

void nx_elf_free(nx_elf *e) { delete e; }

nx_error *nx_context_xclbin(nx_device *d, nx_xclbin *x, const char **names,
  const uint32_t *values, size_t n, nx_context **out)
{
  return guard([&] {
    auto id = d->device.register_xclbin(x->xclbin);
    *out = new nx_context{xrt::hw_context(d->device, id, quality(names, values, n))};
  });
}

nx_error *nx_context_elf(nx_device *d, nx_elf *e, const char **names, const uint32_t *values,
  size_t n, nx_context **out)
{
  return guard([&] { *out = new nx_context{xrt::hw_context(d->device, e->elf, quality(names, values, n))}; });
}

void nx_context_free(nx_context *c) { delete c; }

nx_error *nx_buffer_host(nx_device *d, size_t n, nx_buffer **out)
{
  return guard([&] { *out = whole(xrt::ext::bo(d->device, n)); });
}

nx_error *nx_buffer_cacheable(nx_device *d, size_t n, uint32_t group, nx_buffer **out)
{
  return guard([&] { *out = whole(xrt::bo(d->device, n, xrt::bo::flags::cacheable, group)); });
}

nx_error *nx_buffer_user(nx_device *d, void *p, size_t n, nx_buffer **out)
{
  return guard([&] { *out = whole(xrt::ext::bo(d->device, p, n)); });
}

nx_error *nx_buffer_sub(nx_buffer *parent, size_t offset, size_t n, nx_buffer **out)
{
  return guard([&] {
    size_t at = parent->offset + offset;
    *out = new nx_buffer{xrt::bo(parent->whole, n, at), parent->whole, at};
  });
}

nx_error *nx_buffer_map(nx_buffer *b, void **p, uint64_t *address)
{
  return guard([&] {
    *p = b->bo.map();
    *address = b->bo.address();
  });
}

nx_error *nx_buffer_sync(nx_buffer *b, int from_device, size_t offset, size_t n)
{
  auto dir = from_device ? XCL_BO_SYNC_BO_FROM_DEVICE : XCL_BO_SYNC_BO_TO_DEVICE;
  return guard([&] { b->bo.sync(dir, n, offset); });
}

void nx_buffer_free(nx_buffer *b) { delete b; }

nx_error *nx_kernel_xclbin(nx_context *c, const char *name, nx_kernel **out)
{
  return guard([&] { *out = new nx_kernel{xrt::kernel(c->context, name)}; });
}

nx_error *nx_kernel_elf(nx_context *c, const char *instance, nx_kernel **out)
{
  return guard([&] { *out = new nx_kernel{xrt::ext::kernel(c->context, instance)}; });
}

nx_error *nx_kernel_module(nx_context *c, nx_elf *e, const char *name, nx_kernel **out)
{
  return guard([&] { *out = new nx_kernel{xrt::ext::kernel(c->context, xrt::module(e->elf), name)}; });
}

nx_error *nx_kernel_group(nx_kernel *k, int arg, int *group)
{
  return guard([&] { *group = k->kernel.group_id(arg); });
}

void nx_kernel_free(nx_kernel *k) { delete k; }

nx_error *nx_run_new(nx_kernel *k, nx_run **out)
{
  return guard([&] {
    auto bound = std::make_shared<bound_run>();
    bound->run = xrt::run(k->kernel);
    *out = new nx_run{std::move(bound)};
  });
}

nx_error *nx_run_set_buffer(nx_run *r, int arg, nx_buffer *b)
{
  return guard([&] {
    r->bound->run.set_arg(arg, b->bo);
    r->bound->buffers[arg] = b->bo;
  });
}

nx_error *nx_run_set_scalar(nx_run *r, int arg, const void *value, size_t n)
{
  return guard([&] {
    r->bound->run.set_arg(arg, value, n);
    r->bound->buffers.erase(arg);
  });
}

nx_error *nx_run_start(nx_run *r)
{
  return guard([&] { r->bound->run.start(); });
}

nx_error *nx_run_state(nx_run *r, int *state)
{
  return guard([&] { *state = r->bound->run.state(); });
}

nx_error *nx_run_result(nx_run *r)
{
  return guard([&] { r->bound->run.wait2(); });
}

void nx_run_free(nx_run *r) { delete r; }

nx_error *nx_runlist_new(nx_context *c, nx_runlist **out)
{
  return guard([&] { *out = new nx_runlist{c->context, {}, nullptr}; });
}

nx_error *nx_runlist_add(nx_runlist *l, nx_run *r, int new_chain)
{
  return guard([&] {
    if (new_chain || l->chains.empty()) {
      chain p{xrt::runlist(l->context), {}, true};
      p.list.add(r->bound->run);
      p.runs.push_back(r->bound);
      l->chains.push_back(std::move(p));
      return;
    }
    chain &p = l->chains.back();
    p.runs.reserve(p.runs.size() + 1); // so that the run is added to both lists or neither
    p.list.add(r->bound->run);
    p.runs.push_back(r->bound);
  });
}

// A chain that cannot be submitted stops the submission. Earlier chains run, and the list is done
// when they are.
nx_error *nx_runlist_execute(nx_runlist *l, int *submitted)
{
  *submitted = 0;
  nx_error_free(l->failure);
  l->failure = nullptr;
  return guard([&] {
    for (chain &p : l->chains) {
      p.list.execute();
      p.done = false;
      ++*submitted;
    }
  });
}

// XRT reports a failed run only once, to the first caller that finds the list done, and only as an
// exception from poll or wait; state would swallow it. XRT 2.25 deprecates poll in favor of state.
nx_error *nx_runlist_state(nx_runlist *l, int *state)
{
  int before = 0;
  *state = ERT_CMD_STATE_COMPLETED;
  for (chain &p : l->chains) {
    nx_error *e = p.done ? nullptr : guard([&] { p.done = p.list.poll() != 0; }, &p);
    if (e && !e->state)
      return e; // the state is unknown
    if (e) {
      p.done = true;
      e->run = e->run < 0 ? before : before + e->run;
      if (l->failure)
        nx_error_free(e);
      else
        l->failure = e;
    }
    if (!p.done) {
      *state = ERT_CMD_STATE_RUNNING;
      return nullptr;
    }
    before += static_cast<int>(p.runs.size());
  }
  if (l->failure)
    *state = l->failure->state;
  return nullptr;
}

nx_error *nx_runlist_result(nx_runlist *l)
{
  nx_error *e = l->failure;
  l->failure = nullptr;
  return e;
}

nx_error *nx_runlist_reset(nx_runlist *l)
{
  return guard([&] {
    for (chain &p : l->chains)
      p.list.reset();
    l->chains.clear();
  });
}

void nx_runlist_free(nx_runlist *l)
{
  nx_error_free(l->failure);
  delete l;
}
