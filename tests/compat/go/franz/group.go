package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"evenkeel/compat/told"

	"github.com/twmb/franz-go/pkg/kgo"
)

var assignors = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func group(asked told.Asked) {
	owned := map[int32]bool{}
	options := []kgo.Opt{
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, more map[string][]int32) {
			for _, partition := range more[asked.Topic] {
				owned[partition] = true
			}
			told.Rebalance(slices.Collect(maps.Keys(owned)))
		}),
		kgo.OnPartitionsRevoked(fewer(asked, owned)),
		kgo.OnPartitionsLost(fewer(asked, owned)),
	}
	if asked.Assignor != "" {
		options = append(options, kgo.Balancers(assignors[asked.Assignor]))
	}
	if asked.Protocol == "consumer" {
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	if asked.Instance != "" {
		options = append(options, kgo.InstanceID(asked.Instance))
	}
	member := client(asked, options...)
	defer member.Close()
	soon, cancel := context.WithTimeout(context.Background(), asked.Seconds)
	defer cancel()
	for left := asked.Count; left > 0 && soon.Err() == nil; {
		fetches := member.PollRecords(soon, left)
		left -= fetches.NumRecords()
		if !errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			read(fetches)
		}
	}
	told.Must(member.CommitUncommittedOffsets(context.Background()))
}

type heard = func(context.Context, *kgo.Client, map[string][]int32)

func fewer(asked told.Asked, owned map[int32]bool) heard {
	return func(ctx context.Context, member *kgo.Client, gone map[string][]int32) {
		for _, partition := range gone[asked.Topic] {
			delete(owned, partition)
		}
		if err := member.CommitUncommittedOffsets(ctx); err != nil {
			told.Event("commit failed", told.Fields{"text": err.Error()})
		}
	}
}
