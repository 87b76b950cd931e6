package main

import (
	"context"
	"sync"

	"evenkeel/compat/told"

	"github.com/IBM/sarama"
)

var assignors = map[string]sarama.BalanceStrategy{
	"range":      sarama.NewBalanceStrategyRange(),
	"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	"sticky":     sarama.NewBalanceStrategySticky(),
}

// A member is what sarama calls in each generation; partitions are read side by side.
type member struct {
	topic string
	full  context.CancelFunc
	lock  sync.Mutex
	left  int
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	told.Rebalance(session.Claims()[m.topic])
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for one := range claim.Messages() {
		if !m.take() {
			break
		}
		told.Read(one.Value, int(one.Partition), one.Offset)
		session.MarkMessage(one, "")
	}
	return nil
}

// take counts one more, and ends the work after the last.
func (m *member) take() bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.left--
	if m.left <= 0 {
		m.full()
	}
	return m.left >= 0
}

func group(asked told.Asked) {
	settings := config()
	settings.Consumer.Group.InstanceId = asked.Instance
	if asked.Assignor != "" {
		chosen := []sarama.BalanceStrategy{assignors[asked.Assignor]}
		settings.Consumer.Group.Rebalance.GroupStrategies = chosen
	}
	consumer, err := sarama.NewConsumerGroup(asked.Bootstrap, asked.Group, settings)
	told.Must(err)
	go func() {
		for failed := range consumer.Errors() {
			told.Error(failed)
		}
	}()
	soon, full := context.WithTimeout(context.Background(), asked.Seconds)
	defer full()
	one := &member{topic: asked.Topic, full: full, left: asked.Count}
	for soon.Err() == nil {
		if err := consumer.Consume(soon, []string{asked.Topic}, one); err != nil {
			told.Error(err)
		}
	}
	told.Must(consumer.Close())
}
