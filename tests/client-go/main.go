// A controller with client-go's leader election, as its users write it. While it leads, it writes one record each 2 ms to
// standard output: the number of the term and the boot clock in nanoseconds. The record proves that the process led at that
// time, also when the process is killed. The work of a term may end after client-go reports the end of the term.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file of the API server")
	namespace := flag.String("namespace", "default", "namespace of the Lease")
	name := flag.String("name", "controller", "name of the Lease")
	identity := flag.String("identity", "", "identity of this candidate")
	lease := flag.Duration("lease-duration", 15*time.Second, "LeaseDuration")
	renew := flag.Duration("renew-deadline", 10*time.Second, "RenewDeadline")
	retry := flag.Duration("retry-period", 2*time.Second, "RetryPeriod")
	release := flag.Bool("release-on-cancel", false, "ReleaseOnCancel")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	fail(err)
	client, err := kubernetes.NewForConfig(config)
	fail(err)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	// As controllers do: the process ends when it no longer leads, and its pod starts it again. Here it contends again itself.
	for term := 1; ctx.Err() == nil; term++ {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
			},
			LeaseDuration:   *lease,
			RenewDeadline:   *renew,
			RetryPeriod:     *retry,
			ReleaseOnCancel: *release,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { lead(ctx, term) },
				OnStoppedLeading: func() {},
			},
		})
	}
}

// Works until the election ends.
func lead(ctx context.Context, term int) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		record(term)
		<-ticker.C
	}
}

func record(term int) {
	var now unix.Timespec
	fail(unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
	out := bufio.NewWriterSize(os.Stdout, 64)
	fmt.Fprintf(out, "%d %d\n", term, now.Nano())
	fail(out.Flush())
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
