"""A small operating system that schedules tasks: methods, attributes, linked lists, as Richards does."""


class Packet:
    def __init__(self, link, kind):
        self.link, self.kind, self.data = link, kind, [0] * 4


class Task:
    def __init__(self, scheduler, priority):
        self.scheduler, self.priority, self.queue, self.work = scheduler, priority, None, 0

    def put(self, packet):
        packet.link, self.queue = self.queue, packet

    def take(self):
        packet = self.queue
        if packet is not None:
            self.queue, packet.link = packet.link, None
        return packet

    def step(self):
        raise NotImplementedError


class Worker(Task):
    def step(self):
        packet = self.take()
        if packet is None:
            return False
        for i in range(4):
            self.work = (self.work + 1) % 26
            packet.data[i] = self.work + 65
        self.scheduler.send(packet, 1 - packet.kind)
        return True


class Device(Task):
    def step(self):
        packet = self.take()
        if packet is None:
            return False
        self.work += sum(packet.data)
        self.scheduler.send(packet, packet.kind)
        return True


class Scheduler:
    def __init__(self):
        self.tasks = [Worker(self, 10), Device(self, 20), Worker(self, 30), Device(self, 40)]
        self.turn = 0

    def send(self, packet, kind):
        packet.kind = kind
        self.turn = (self.turn + 1) % len(self.tasks)
        self.tasks[self.turn].put(packet)

    def loop(self, steps):
        while steps:
            for task in sorted(self.tasks, key=lambda task: task.priority):
                while steps and task.step():
                    steps -= 1


def run() -> None:
    scheduler = Scheduler()
    for i in range(8):
        scheduler.send(Packet(None, i % 2), i % 2)
    scheduler.loop(40_000)
