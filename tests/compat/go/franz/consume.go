package main

import (
	"context"
	"errors"

	"evenkeel/compat/told"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func consume(asked told.Asked) {
	start := map[string]map[int32]kgo.Offset{asked.Topic: {0: kgo.NewOffset().AtStart()}}
	consumer := client(asked, kgo.ConsumePartitions(start))
	defer consumer.Close()
	soon, cancel := context.WithTimeout(context.Background(), asked.Seconds)
	defer cancel()
	for left := asked.Count; left > 0 && soon.Err() == nil; {
		fetches := consumer.PollRecords(soon, left)
		left -= fetches.NumRecords()
		if !errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			read(fetches)
		}
	}
}

func times(asked told.Asked) {
	admin := kadm.NewClient(client(asked))
	defer admin.Close()
	found, err := admin.ListOffsetsAfterMilli(
		context.Background(), asked.At.UnixMilli(), asked.Topic)
	told.Must(err)
	one, _ := found.Lookup(asked.Topic, 0)
	told.Must(one.Err)
	var offset any
	if one.Timestamp >= 0 { // else it is the end of the log
		offset = one.Offset
	}
	told.Event("offset", told.Fields{"offset": offset})
}

func transact(asked told.Asked) {
	producer := client(asked, kgo.TransactionalID(asked.Topic))
	defer producer.Close()
	err := producer.BeginTransaction()
	if err == nil {
		record := &kgo.Record{Topic: asked.Topic, Value: []byte("never")}
		err = producer.ProduceSync(context.Background(), record).FirstErr()
	}
	if err != nil {
		told.Event("refused", told.Fields{"text": err.Error()})
	}
}
