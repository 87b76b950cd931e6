package main

import (
	"context"

	"evenkeel/compat/told"

	"github.com/segmentio/kafka-go"
)

const setting = "retention.ms"

func admin(asked told.Asked) {
	ctx, topic := context.Background(), asked.Topic
	client := &kafka.Client{Addr: address(asked)}
	wanted := kafka.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: -1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: setting, ConfigValue: "1000"}}}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	told.Must(err)
	told.Must(made.Errors[topic])
	told.Step("created")
	told.Until(func() bool { return retention(client, topic) == "1000" })
	told.Step("retention.ms=1000")
	longer := kafka.IncrementalAlterConfigsRequestConfig{Name: setting, Value: "2000"}
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{longer},
		}},
	})
	told.Must(err)
	told.Must(altered.Resources[0].Error)
	told.Until(func() bool { return retention(client, topic) == "2000" })
	told.Step("retention.ms=2000")
	more, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 5}}})
	told.Must(err)
	told.Must(more.Errors[topic])
	told.Until(func() bool { return partitions(client, topic) == 5 })
	told.Step("partitions=5")
	told.Until(func() bool { return partitions(client, topic) > 0 })
	told.Step("listed")
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	told.Must(err)
	told.Must(gone.Errors[topic])
	told.Until(func() bool { return partitions(client, topic) == 0 })
	told.Step("deleted")
}

func retention(client *kafka.Client, topic string) string {
	resource := kafka.DescribeConfigRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{setting},
	}
	described, err := client.DescribeConfigs(context.Background(), &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{resource}})
	told.Must(err)
	for _, one := range described.Resources[0].ConfigEntries {
		return one.ConfigValue
	}
	return ""
}

// partitions asks for the whole list, as a listing of topics does.
func partitions(client *kafka.Client, topic string) int {
	known, err := client.Metadata(context.Background(), &kafka.MetadataRequest{})
	told.Must(err)
	for _, one := range known.Topics {
		if one.Name == topic {
			return len(one.Partitions)
		}
	}
	return 0
}
