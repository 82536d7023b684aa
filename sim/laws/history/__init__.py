"""Laws over what applications were told, judged when a history is over."""
