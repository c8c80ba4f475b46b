"""Steps of stages run as tasks on a carrier: threads of this machine or a Ray cluster, to the bytes of one process."""
