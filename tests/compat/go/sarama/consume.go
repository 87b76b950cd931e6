package main

import (
	"time"

	"evenkeel/compat/told"

	"github.com/IBM/sarama"
)

func consume(asked told.Asked) {
	consumer, err := sarama.NewConsumer(asked.Bootstrap, config())
	told.Must(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(asked.Topic, 0, sarama.OffsetOldest)
	told.Must(err)
	defer partition.Close()
	over := time.After(asked.Seconds)
	for left := asked.Count; left > 0; left-- {
		select {
		case one := <-partition.Messages():
			told.Read(one.Value, int(one.Partition), one.Offset)
		case failed := <-partition.Errors():
			told.Error(failed)
		case <-over:
			return
		}
	}
}

func times(asked told.Asked) {
	client, err := sarama.NewClient(asked.Bootstrap, config())
	told.Must(err)
	defer client.Close()
	found, err := client.GetOffset(asked.Topic, 0, asked.At.UnixMilli())
	told.Must(err)
	var offset any
	if found >= 0 {
		offset = found
	}
	told.Event("offset", told.Fields{"offset": offset})
}

func transact(asked told.Asked) {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Transaction.ID = asked.Topic
	producer, err := sarama.NewSyncProducer(asked.Bootstrap, settings)
	if err == nil {
		defer producer.Close()
		err = producer.BeginTxn()
	}
	if err != nil {
		told.Event("refused", told.Fields{"text": err.Error()})
	}
}
