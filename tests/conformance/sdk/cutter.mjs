// A proxy that can cut its connections, to test that a client comes back.

import { connect, createServer } from 'node:net';

/** Passes bytes between clients and the server, until the cut. */
export class Cutter {
    #sockets = new Set();
    /** Bytes of the clients, as text. */
    sent = '';

    /** Listens; returns the port. */
    async start(host, port) {
        this.server = createServer(near => {
            const far = connect(port, host);
            for (const [source, sink] of [[near, far], [far, near]]) {
                this.#sockets.add(source);
                source.on('error', () => {});
                source.on('close', () => {
                    this.#sockets.delete(source);
                    sink.destroy();
                });
                source.pipe(sink);
            }
            near.on('data', data => (this.sent += data.toString('latin1')));
        });
        await new Promise(resolve => this.server.listen(0, '127.0.0.1', resolve));
        return this.server.address().port;
    }

    /** Resets every connection, as a network that fails does; returns how many. */
    cut() {
        const sockets = [...this.#sockets];
        for (const socket of sockets) socket.resetAndDestroy();
        return sockets.length / 2;
    }

    close() {
        this.server.close();
        this.cut();
    }
}
