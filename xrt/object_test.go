package xrt

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestCloseFreesOnce(t *testing.T) {
	freed := 0
	o := newObject("thing", nil, func(unsafe.Pointer) { freed++ })
	for range 2 {
		if _, err := o.acquire(); err != nil {
			t.Fatal(err)
		}
	}
	o.close()
	o.close()
	if freed != 0 {
		t.Error("freed during two calls")
	}
	if _, err := o.acquire(); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after close: %v, want ErrClosed", err)
	}
	o.release()
	if freed != 0 {
		t.Error("freed during one call")
	}
	o.release()
	o.close()
	if freed != 1 {
		t.Errorf("freed %d times", freed)
	}
}

func TestConcurrentClose(t *testing.T) {
	for range 200 {
		var freed, inside atomic.Int32
		o := newObject("thing", nil, func(unsafe.Pointer) {
			if freed.Add(1) != 1 || inside.Load() != 0 {
				t.Error("freed twice or during a call")
			}
		})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for range 20 {
					err := o.do(func(unsafe.Pointer) error {
						inside.Add(1)
						defer inside.Add(-1)
						if freed.Load() != 0 {
							t.Error("a call got a freed handle")
						}
						return nil
					})
					if err != nil && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
				}
				if g%4 == 0 {
					o.close()
				}
			})
		}
		wg.Wait()
		if freed.Load() != 1 {
			t.Fatalf("freed %d times", freed.Load())
		}
	}
}
