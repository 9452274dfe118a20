"""From the joint graph's nodes to operations and values, named, ordered, joined and priced."""
