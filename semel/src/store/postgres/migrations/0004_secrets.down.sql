-- Without the secret, principals that were made by it cannot be made again: their keys are unknown afterwards.

drop table semel.secrets;
