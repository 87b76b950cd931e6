package main

import (
	"context"

	"evenkeel/compat/told"

	"github.com/segmentio/kafka-go"
)

func consume(asked told.Asked) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: asked.Bootstrap, Topic: asked.Topic})
	defer reader.Close()
	soon, cancel := context.WithTimeout(context.Background(), asked.Seconds)
	defer cancel()
	for left := asked.Count; left > 0; left-- {
		one, err := reader.ReadMessage(soon)
		told.Must(err)
		told.Read(one.Value, one.Partition, one.Offset)
	}
}

func times(asked told.Asked) {
	client := &kafka.Client{Addr: address(asked)}
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		asked.Topic: {kafka.TimeOffsetOf(0, asked.At)},
	}}
	answer, err := client.ListOffsets(context.Background(), request)
	told.Must(err)
	one := answer.Topics[asked.Topic][0]
	told.Must(one.Error)
	var offset any
	for found := range one.Offsets {
		if found >= 0 {
			offset = found
		}
	}
	told.Event("offset", told.Fields{"offset": offset})
}

func transact(asked told.Asked) {
	client := &kafka.Client{Addr: address(asked)}
	request := &kafka.InitProducerIDRequest{TransactionalID: asked.Topic, TransactionTimeoutMs: 10_000}
	answer, err := client.InitProducerID(context.Background(), request)
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		told.Event("refused", told.Fields{"text": err.Error()})
	}
}
