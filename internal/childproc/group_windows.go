package childproc

import (
	"errors"
	"fmt"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/windows"
)

// group is a command's job object. Windows kills its processes when its last handle is closed, and
// closes the handles of a process that ends, however it ends.
type group struct {
	cmd *exec.Cmd
	job windows.Handle
}

func newGroup(cmd *exec.Cmd) (*group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("a job object for %s: %w", cmd.Path, err)
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return nil, errors.Join(fmt.Errorf("a job object for %s: %w", cmd.Path, err), windows.CloseHandle(job))
	}
	return &group{cmd, job}, nil
}

func (g *group) start() error {
	if err := g.cmd.Start(); err != nil {
		return err
	}
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false,
		uint32(g.cmd.Process.Pid))
	if err == nil {
		err = errors.Join(windows.AssignProcessToJobObject(g.job, p), windows.CloseHandle(p))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("putting %s into a job object: %w", g.cmd.Path, err),
			g.cmd.Process.Kill(), g.cmd.Wait())
	}
	return nil
}

func (g *group) kill() error { return windows.TerminateJobObject(g.job, 1) }

func (g *group) close() error { return windows.CloseHandle(g.job) }
