package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Serve serves one client over a pair of streams, such as stdin and stdout, until r or ctx ends.
// Nothing else may be written to w.
func (s *Server) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	return s.connect(ctx, &sdk.IOTransport{Reader: io.NopCloser(r), Writer: nopCloser{w}})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// connect serves one client over a transport of the SDK, until the client leaves or ctx ends.
func (s *Server) connect(ctx context.Context, t sdk.Transport) error {
	err := s.mcp.Run(ctx, t)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("mcp: %w", err)
	}
	return nil
}

// handler returns the handler for streamable HTTP. It refuses requests from web pages of another
// origin.
func (s *Server) handler() http.Handler {
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.mcp }, &sdk.StreamableHTTPOptions{
		PropagateRequestCancellation: true, // a client has left
		SessionTimeout:               idleSession,
	})
	return http.NewCrossOriginProtection().Handler(h)
}

// idleSession is how long a session without calls is kept.
const idleSession = time.Hour

// listen listens on a loopback address.
func listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("mcp: %w; want an address such as 127.0.0.1:7777", err)
	}
	if host == "localhost" {
		host = "127.0.0.1" // the name may resolve to another address
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("mcp: %q is not a loopback address, and the server is for this machine only: use "+
			"127.0.0.1:%s", host, port)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	return l, nil
}

// ListenAndServe serves several clients over streamable HTTP until ctx ends. The address must be a
// loopback address; port 0 is any free port. Ready is called with the address once the server
// listens, and may be nil; if it returns an error, ListenAndServe returns that error.
func (s *Server) ListenAndServe(ctx context.Context, addr string, ready func(net.Addr) error) error {
	l, err := listen(addr)
	if err != nil {
		return err
	}
	if ready != nil {
		if err := ready(l.Addr()); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	err = srv.Serve(l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("mcp: %w", err)
}
